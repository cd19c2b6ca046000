"""Reads HLO with jaxlib. Each line of standard input names the text and the proto of one program. Each answer is a line
of JSON with the error of either (null if there is none) and whether the two modules are the same. If a program crashes
jaxlib, the answer says so."""

import json
import os
import re
import sys

from jaxlib import _hlo


# Attributes of a module's header for which XLA's proto has no field.
NOT_IN_PROTOS = re.compile(r", (allow_spmd_sharding_propagation_to_\w+=\{[^}]*\}|(num_partitions|replica_count)=\d+|"
                           r"alias_passthrough_params=true)")


def text_of(module):
    return NOT_IN_PROTOS.sub("", module.to_string())


def attempt(read, data):
    try:
        return read(data), None
    except Exception as error:
        return None, " ".join(str(error).split())


def answer(text_path, proto_path):
    with open(text_path, encoding="utf-8", errors="replace") as text, open(proto_path, "rb") as proto:
        of_text, text_error = attempt(_hlo.hlo_module_from_text, text.read())
        of_proto, proto_error = attempt(_hlo.HloModule.from_serialized_hlo_module_proto, proto.read())
    same = of_text is None or of_proto is None or text_of(of_text) == text_of(of_proto)
    return {"text": text_error, "proto": proto_error, "same": same}


def main():
    pairs = [line.split() for line in sys.stdin]
    done = 0
    while done < len(pairs):
        read, write = os.pipe()
        if os.fork() == 0:
            with os.fdopen(write, "w", buffering=1) as out:
                for pair in pairs[done:]:
                    out.write(json.dumps(answer(*pair)) + "\n")
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as answers:
            for line in answers:
                done += 1
                print(line, end="")
        os.wait()
        if done < len(pairs):
            done += 1
            print(json.dumps({"text": "crash", "proto": "crash", "same": False}))


if __name__ == "__main__":
    main()
