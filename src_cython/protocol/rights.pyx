# The rights of a connection's user, and what its server can do. Pure: replies in, texts
# out.
#
# A user that may SET and may not run the release takes locks that last for their
# ttl; so does one of a server, or of a proxy before it, that has no scripts. So the
# handshake runs a script without keys, by its source and by its hash, which tries the
# commands of the release: an error is then about the command and never about a key
# that is forbidden to this user. Any other answer than the expected one is a refusal,
# but for those of the server's state: it has looked for the command, and for the right
# to it, before. (All servers check the command before its keys: Redis 6.2 and 7.0,
# Valkey 9.1.) With fencing it tries the commands of the numbers as well, without which
# a key would be set that does not count.


# Texts in the errors of Redis 6.0 and later, and of Valkey: about a command as such
# (the second inside of a script, before Redis 7.2), and about anything.
cdef tuple OF_COMMANDS = (
    "permissions to run the", "can't run this command",
)
cdef tuple OF_ALL = (
    "NOPERM", "ERR ACL failure in script", "user executing the script can't",
)
# About the state of a server (its codes stand in the middle of a script's error, before
# Redis 7), or of a key.
cdef tuple OF_STATE = (
    "BUSY", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY",
    "stale replica", "CLUSTERDOWN", "non local key", "WRONGTYPE",
)


cdef bint text_forbids(str text):
    # Whether an ACL has refused a command, or a command inside of a script.
    return any([words in text for words in OF_ALL])


cdef bint text_is_for_good(str text):
    # ...or the server has no such command.
    cdef str lower = text.lower()
    return text_forbids(text) or "unknown" in lower and "command" in lower


cdef bint text_is_of_state(str text):
    return any([words in text for words in OF_STATE])


cdef bint text_is_of_command(str text):
    # Whether an error refuses a command, whatever its keys are and for good.
    if text_forbids(text):
        return any([words in text for words in OF_COMMANDS])
    return not text_is_of_state(text)


@cython.final
cdef class Rights:
    """The right to run scripts, from the answers of one handshake."""

    cdef dict refused      # by command, or "fencing": the name of it and the error

    def __cinit__(self):
        self.refused = {}

    def on_reply(self, str name, reply):
        """Take the answer to SCRIPT LOAD, or to the probe by EVAL or by EVALSHA."""
        if name != "SCRIPT LOAD" and name != "EVAL" and name != "EVALSHA":
            return
        if reply_is_error(reply):
            # The probe is loaded by its EVAL: without that, EVALSHA finds none.
            if name != "EVALSHA" or not reply_error(reply).startswith("NOSCRIPT"):
                self.refused[name] = f"{name}: {reply_text(reply)}"
        elif name == "SCRIPT LOAD" or type(reply) is int and reply == 1:
            return      # 1: of a release that is not ours, nothing else is tried
        elif type(reply) is list and all([type(each) is bytes for each in reply]):
            for each in reply:      # the commands refused inside of it
                text = each.decode("utf-8", "replace")[:SHOWN_REPLY_LENGTH]
                if text_is_of_command(text):
                    name = text.partition(":")[0]
                    self.refused[name] = text.removeprefix("fencing: ")
        else:
            self.refused[name] = f"{name}: {reply_text(reply)}"

    def script_error(self):
        """Return why no script of ours can be run, or None."""
        if "EVAL" in self.refused and "SCRIPT LOAD" in self.refused:
            return self.refused.get("EVALSHA", self.refused["EVAL"])
        return self.refused.get("EVALSHA")

    def lacks_eval(self):
        """Whether scripts can be run by their hashes alone, if at all."""
        return "EVAL" in self.refused

    def refusal(self):
        """Return why no lock can be released, or none gets a number, or None."""
        error = self.script_error()
        if error is not None:
            rights = "+evalsha +eval" if "EVAL" in self.refused else "+evalsha"
            if "EVALSHA" not in self.refused:
                rights = "+eval"
            return unreleased_text(error, rights)
        for name, error in self.refused.items():
            if name not in ("EVAL", "SCRIPT LOAD", "PEXPIRE", "fencing"):
                return unreleased_text(error, "+get +del")
        if "fencing" in self.refused:
            return (
                f"its user may not write numbers of grants ({self.refused['fencing']}),"
                " so it gets no vote: grant +zadd +zscore +pexpire"
            )
        return None

    def warnings(self, bint is_native):
        """List what cannot be done where a vote is not refused."""
        found = []
        if "EVAL" in self.refused:
            found.append(
                f"may not run EVAL ({self.refused['EVAL']}): a release that finds its "
                "script flushed has to wait for a new connection; grant +eval"
            )
        if "PEXPIRE" in self.refused and not is_native:
            found.append(
                f"cannot extend leases ({self.refused['PEXPIRE']}): grant +pexpire"
            )
        return found


cdef str unreleased_text(str error, str right):
    if text_forbids(error):
        return (
            f"its user may not release locks ({error}), so it gets no vote: "
            f"grant {right}"
        )
    return (
        f"cannot release locks ({error}), so it gets no vote: this server, or a proxy "
        f"before it, has to allow {right.replace('+', '').upper()}"
    )
