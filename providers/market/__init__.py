"""Prices and risk figures that providers publish: one module a source, each optional."""
