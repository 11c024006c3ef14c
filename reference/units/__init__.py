"""Models of matrix units: what an instruction computes of codes, bit for bit; which units there are; schedules of them."""
