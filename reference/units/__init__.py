"""Models of matrix units: what an instruction computes of codes, bit for bit; which there are; schedules of them."""
