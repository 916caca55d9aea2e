"""What a person or an application may ask (insights) and do (actions): the public Python API, and the CLI's ground."""
