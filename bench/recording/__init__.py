"""Record labelled incidents of a real vLLM on a CPU, for an honest check of ``diag triage``.

Opt-in: no test and no CI job runs it. See README.md beside this file.
"""
