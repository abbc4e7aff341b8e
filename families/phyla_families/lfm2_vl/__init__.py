"""LFM2, LFM2-MoE and LFM2-VL."""
