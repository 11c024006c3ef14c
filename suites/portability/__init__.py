"""What holds a run together on machines without the hardware: the emulated driver, the interpreter."""
