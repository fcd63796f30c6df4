"""The parts of bench/compare.py: data sets, one measurement in a process of its own, the raw device, targets, the report."""
