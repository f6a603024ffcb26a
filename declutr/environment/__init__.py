"""What this package needs from its environment and keeps there, told and put right by commands.

Nothing in this room imports AllenNLP, torch or numpy when it is imported: its commands run where
they are missing or broken.
"""
