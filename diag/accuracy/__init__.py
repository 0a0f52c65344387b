"""How often triage is right: labelled corpora, scores, rival methods, calibration."""
