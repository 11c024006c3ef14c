from narrowgauge.suites import run

run.MODULES = {}
