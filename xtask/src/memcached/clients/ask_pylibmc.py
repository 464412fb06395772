"""What pylibmc, which is libmemcached, is told by the server on a port of this machine, in both protocols."""
import sys
import time

import pylibmc


def say(what, call):
    try:
        print(f"{what}: {call()!r:.200}")
    except Exception as error:
        # What libmemcached says where has the address.
        print(f"{what}: {type(error).__name__}")


def ask(c, binary):
    say("flush_all", c.flush_all)
    say("get of none", lambda: c.get("a"))
    say("set", lambda: [c.set("a", "one"), c.get("a")])
    say("types", lambda: [c.set("i", 7), c.get("i"), c.set("t", True), c.get("t")])
    say("list", lambda: [c.set("l", [1, "x"]), c.get("l")])
    say("set_multi", lambda: c.set_multi({"b": "two", "c": "three"}))
    say("get_multi", lambda: sorted(c.get_multi(["a", "b", "no", "c"]).items()))
    say("add", lambda: [c.add("a", "x"), c.add("added", "x")])
    say("replace", lambda: [c.replace("a", "uno"), c.replace("no", "x"), c.get("a")])
    cas = c.gets("a")[1]
    say("cas", lambda: [c.cas("a", "new", cas), c.cas("a", "newer", cas), c.get("a")])
    say("cas of none", lambda: c.cas("no", "x", cas))
    say("append", lambda: [c.append("a", "!"), c.prepend("a", "<"), c.get("a")])
    say("append to none", lambda: c.append("no", "!"))
    say("number", lambda: [c.set("n", 10), c.incr("n", 5), c.decr("n", 100), c.get("n")])
    say("number of none", lambda: c.incr("no", 1))
    if not binary:
        # In the other protocol it is told, and says nothing sensible afterwards.
        say("no number", lambda: c.incr("a", 1))
    say("touch", lambda: [c.touch("a", 100), c.touch("no", 100)])
    say("delete", lambda: [c.delete("a"), c.delete("a"), c.get("a")])
    say("delete_multi", lambda: [c.delete_multi(["b", "no"]), c.get("b")])
    every = bytes(range(256)) + b"\r\nEND\r\n"
    say("bytes", lambda: [c.set("bytes", every), c.get("bytes") == every])
    say("empty", lambda: [c.set("empty", b""), c.get("empty")])
    large = b"0123456789" * 100_000
    say("large", lambda: [c.set("large", large), c.get("large") == large])
    say("too large", lambda: c.set("larger", large * 3))
    say("after that", lambda: c.get("empty"))
    compressed = large * 3
    say("compressed", lambda: [c.set("z", compressed, min_compress_len=1000), c.get("z") == compressed])
    say("longest key", lambda: [c.set("k" * 249, "x"), c.get("k" * 249)])
    say("expires", lambda: [c.set("e", "x", time=2), c.get("e")])
    time.sleep(3.1)
    say("has expired", lambda: c.get("e"))
    say("statistics", lambda: "cmd_get" in c.get_stats()[0][1])
    keys = [f"m{n}" for n in range(700)]
    say("many keys", lambda: [c.set_multi(dict.fromkeys(keys[:500], "x")), len(c.get_multi(keys))])


for binary in (False, True):
    print(f"binary: {binary}")
    behaviors = {"cas": True, "tcp_nodelay": True}
    ask(pylibmc.Client([f"127.0.0.1:{sys.argv[1]}"], binary=binary, behaviors=behaviors), binary)
