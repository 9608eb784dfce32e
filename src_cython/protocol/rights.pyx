# The rights of a connection's user: pure, error replies in, texts out.
#
# A user that may SET and may not run the release takes locks that last for their
# ttl. So the handshake runs a script without keys, by its source and by its hash, which
# tries the commands of the release: NOPERM is then about the command and never about a
# key that is forbidden to this user. (All servers check the command before its keys:
# Redis 6.2 and 7.0, Valkey 9.1.) Other errors forbid nothing. With fencing it tries the
# commands of the numbers as well, without which a key would be set that does not count.


# Texts in the errors of Redis 6.0 and later, and of Valkey: about a command as such
# (the second inside of a script, before Redis 7.2), and about anything.
cdef tuple OF_COMMANDS = (
    "permissions to run the", "can't run this command",
)
cdef str OF_NUMBERS = "fencing: "      # of the probe with fencing
cdef tuple OF_ALL = (
    "NOPERM", "ERR ACL failure in script", "user executing the script can't",
)


cdef bint text_forbids(str text):
    # Whether an ACL has refused a command, or a command inside of a script.
    return any([words in text for words in OF_ALL])


cdef bint text_forbids_command(str text):
    # ...and whatever its keys are.
    return text_forbids(text) and any([words in text for words in OF_COMMANDS])


@cython.final
cdef class Rights:
    """The right to run scripts, from the answers of one handshake."""

    cdef str no_evalsha, no_eval, no_load, no_command     # the server's text, or None
    cdef str no_number           # likewise, with fencing

    def on_reply(self, str name, reply):
        """Take the answer to SCRIPT LOAD, or to the probe by EVAL or by EVALSHA."""
        if reply_is_error(reply):
            is_forbidden = reply_error(reply).startswith("NOPERM")
            if name == "SCRIPT LOAD":
                self.no_load = reply_text(reply)
            elif name == "EVALSHA" and is_forbidden:
                self.no_evalsha = reply_text(reply)
            elif name == "EVAL" and is_forbidden:
                self.no_eval = reply_text(reply)
        elif type(reply) is list:      # of the probe: the commands refused inside of it
            for error in reply:
                text = error.decode("utf-8", "replace") if type(error) is bytes else ""
                is_of_number = text.startswith(OF_NUMBERS)
                text = text.removeprefix(OF_NUMBERS)[:SHOWN_REPLY_LENGTH]
                if not text_forbids_command(text):
                    continue
                if is_of_number:
                    self.no_number = text
                else:
                    self.no_command = text

    def refusal(self):
        """Return why this user can release no lock, or give none a number, or None."""
        if self.no_evalsha is not None:
            rights = "+evalsha" if self.no_eval is None else "+evalsha +eval"
            return unreleased_text(self.no_evalsha, rights)
        if self.no_eval is not None and self.no_load is not None:
            return unreleased_text(self.no_eval, "+eval")
        if self.no_command is not None:
            return unreleased_text(self.no_command, "+get +del")
        if self.no_number is not None:
            return (
                f"its user may not write numbers of grants ({self.no_number}), so it "
                "gets no vote: grant +zadd +zscore +pexpire"
            )
        return None

    def warning(self):
        """Return which locks of this user may not be released, or None."""
        if self.no_eval is None or self.refusal() is not None:
            return None
        return (
            f"its user may not run EVAL ({self.no_eval}): a release that finds its "
            "script flushed has to wait for a new connection; grant +eval"
        )


cdef str unreleased_text(str error, str right):
    return (
        f"its user may not release locks ({error}), so it gets no vote: "
        f"grant {right}"
    )
