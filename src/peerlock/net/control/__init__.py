"""What the command line asks of a node, and how it is answered: `session`, `client`, `status`,
`tracing`.
"""
