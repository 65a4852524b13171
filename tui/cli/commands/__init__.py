"""Owns nothing: one module a command lives here."""
