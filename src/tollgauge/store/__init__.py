"""Rows and core types: load and save the service's state. The meaning of a row is decided in
monitor.
"""
