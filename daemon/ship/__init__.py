"""Shipping: the connection to the peer, bulk transfer over it, and what receives at the other end."""
