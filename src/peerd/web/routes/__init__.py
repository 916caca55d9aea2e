"""The routes of the API: those made from operations (`rest`, `combined`, `operations`), and those written by hand."""
