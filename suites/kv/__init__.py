"""Key-value caches: writers, readers and attention, judged apart."""
