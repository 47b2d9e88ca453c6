"""What agentctl says of itself when nobody asks for more."""

SUMMARY = """\
agentctl: what a libvirt host has, who sits where, what is promised.
  status          how the agent and the host are, on one screen
  topology, usage a map of all CPUs, pages, devices; total, used, free by cell
  domains, show   all guests and what they hold; show GUEST: one of them in full
  why THING       who holds CPU 3, device 0000:3b:02.1, or what a guest holds
  conflicts       what contradicts, since when, and what to do about it
  check           audit this host without the agent; for Nagios, Prometheus
  fit, snapshot   does a guest fit, where or why not; save this host in a file
  claim           promise a guest a place; also migration, group, maintenance
More: agentctl --help (where to look, exit codes), agentctl COMMAND --help
"""
