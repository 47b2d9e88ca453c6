"""The exit codes of all commands, and what ends one early."""

from __future__ import annotations

OK = 0
FOUND = 1
BAD_ARGUMENTS = 2
COULD_NOT_LOOK = 3
INTERRUPTED = 130
BROKEN_PIPE = 141

TABLE = f"""\
exit codes, the same for all commands:
  {OK}    done; nothing that contradicts was found
  {FOUND}    conflicts were found (conflicts, check), the guest does not fit (fit), the agent refuses (claim,\
 migration, group, maintenance, instance, device, journal), or the host is degraded (status --exit-code)
  {BAD_ARGUMENTS}    bad arguments: unknown command, option, guest, claim or move, a name that fits several, a\
 request with faults
  {COULD_NOT_LOOK}    could not look: no libvirt, no permission, no agent, a wrong configuration, a fault of agentctl;\
 or could not ask: the agent does not know its host yet
  {INTERRUPTED}  interrupted; {BROKEN_PIPE}: nobody reads the output any more
check --one-line has Nagios's codes instead: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN"""


class BadArguments(Exception):
    """What was asked for does not exist or is not clear; the text is one sentence."""
