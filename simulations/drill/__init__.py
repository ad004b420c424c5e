"""Rehearsals of an interruption on one machine: everything real except the provider's word."""
