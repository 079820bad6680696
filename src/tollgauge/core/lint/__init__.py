"""The linter of 402 responses: reads the payment terms and reports the defects of the envelope.

`judge.lint` judges one exchange, `capture.read_capture` reads a saved one, and
`accepts.terms_of_accepts` reads the terms of listings with the same code as challenges. Only
`read_capture` raises on malformed input. core/probe/probe and core/score/scoring decide the effect
of a finding on the score.
"""
