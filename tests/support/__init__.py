"""Helpers, fakes and programs that several tests share."""
