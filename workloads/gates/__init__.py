"""Checks that run before the first step of a pipeline: do the accelerators compute, can the store be used?"""
