"""Nemotron-H, Nemotron Nano v2 and Nemotron 3."""
