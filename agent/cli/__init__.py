"""agentctl, the commands for people."""
