"""Tests of the dashboard of running nodes, in a browser. They share both, which end with the last of them."""
