"""Interruption rates from spells: estimators, their uncertainty, and the gate that refuses false patterns."""
