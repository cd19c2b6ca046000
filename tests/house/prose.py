"""Plain technical English, checked: constructions that comments, messages and documents must not contain.

    python3 tests/house/prose.py [PATH...]    prints FILE:LINE: "what was found": what to write

Without PATH the whole tree is checked. The exit code is 1 if anything was found.

What is checked: comments, string literals of two or more words, and Markdown outside code blocks. Text in backticks or
double quotes inside these is an example or a quotation, and is not checked. The names of tests are checked as the words
of which they consist, and the spelling of all names is checked. A comment that follows code on its line must not
continue on the next line. A line of Markdown has at most 120 columns, except in code blocks and tables.
"""

import functools
import os
import pathlib
import re
import sys
import tokenize

try:  # Python has no public parser of regular expressions.
    import re._constants as regex
    import re._parser as parser
except ImportError:
    parser = None

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Comparatives, after which "than" is correct.
COMPARATIVES = "rather|more|less|fewer|later|earlier|longer|shorter|larger|smaller|higher|lower|faster|slower"
USERS = ["user", "client", "caller", "reader", "who", "author"]  # Only these may be said to want something.
# (pattern, what to write). Patterns are case-insensitive, except those that start with BEGIN, which match only at the
# beginning of a sentence.
BEGIN = r"(?:^|(?<=[.;:!?]) )(?:[-*] )?"
RULES = [
    # Conditions.
    (r"\b(?:null|nullptr|nullopt|empty|none|false|true|zero|zeros|error|unset|absent|[A-Z]\w+Error|InvalidArgument|"
     r"NotFound|DataLoss|AlreadyExists|Unimplemented|Unavailable|FailedPrecondition|ResourceExhausted|Aborted|Internal|"
     r"NaN|raises|only|even|also|never|except|but|just|done|-?\d+) where\b",
     'a condition: "if" or "when", not "where"'),
    (r"\bwhere (?:there|nothing|nobody|no|none|not|missing|absent|empty|unknown|known|given|needed|set|unset|both|"
     r"neither|several|wanted|everything|nullptr|null|true|false)\b",
     'a condition: "if there is" or "when", not "where"'),
    (r"\bwhere (?:it|that|this|they|these|he|one) (?:is|are|was|were) (?:not|no|missing|absent|empty|known|unknown|"
     r"null|small|large|smaller|larger|free|possible|safe|cheaper|set|of|wanted|allowed|equal|zero|true|false|open|"
     r"closed)\b",
     'a condition: "if it is", not "where it is"'),
    (r"\bwhere (?:it|that|this|they|these|one|we) (?:has|have|had|can|cannot|could|may|might|must|does|do|did|fits?|"
     r"matters?|helps?|pays?|exists?|differs?|needs?|lacks?|applies|apply|would|will)\b",
     'a condition: "if it can", not "where it can"'),
    (r'\bwhere "_+"(?=[.,;:)]|$)', 'a condition: "if", not "where"'),
    (r"(?<!from )(?<!is )(?<!says )(?<!place )(?<!point )(?<!places )(?<!points )(?<!position )(?<!line )(?<!file )"
     r"(?<!of )(?<!by )(?<!know )(?<!and )(?<!to )(?<!knows )(?<!are )(?<!memory )(?<!step )\bwhere (?:a|an|one|some|"
     r"two|many|its|all|more|most|less|fewer|only|another) ",
     'a condition: "if", not "where" (a place: "the point where")'),
    (BEGIN + r"Where [^.;:]*, ", 'a condition: "If ..., ..." (a place: "In ...")'),
    (r"\bif there (?:is|are) (?:such|any) (?:one|ones)\b", '"if any"'),
    (BEGIN + r"Else\b", '"Otherwise"'),
    (r"\b(?:and|or) else\b|[,;] else\b", '"otherwise", "or, if there is none, ..."'),
    # Fragments without a subject or a verb.
    (BEGIN + r"Of (?!these\b|those\b|course\b)", 'a full sentence: say what it is ("The width of the window.")'),
    (BEGIN + r"(?:That|Those) (?:of|with) (?![^.;:]*\b(?:is|are|was|were|has|have|must|can|may|do)\b)",
     'a full sentence: say what it is ("The ids of the tokens.")'),
    (BEGIN + r"Gives\b", '"Returns", "Assigns", ...'),
    (BEGIN + r"(?:Behind|Beside|Beneath|Alike|Likewise)\b", 'a full sentence, subject first'),
    (BEGIN + r"So (?:many|much|long|far)\b", 'say what is counted: "The number of ..."'),
    (BEGIN + r"(?:Made|Taken|Told|Kept|Held|Asked|Stands|Lies|Goes|Comes) (?:anew|where|apart|once|of|by|at|up)\b",
     "a full sentence, subject first"),
    # Inverted negations.
    (r"(?<!there )(?<!There )\b(?:is|are|was|were|be) (?-i:none)\b", '"is not a ..."'),
    (r"(?<!there )(?<!There )\b(?:is|are|was|were) no (?!longer|more|less|fewer|such|different|other|need|point|way|"
     r"reason|guarantee|better|worse|\w+er than)(?=\w)", '"is not a ..."'),
    (r"\b(?:that|which|what) (?:nobody|no one|none)\b|\bwhat nothing\b|\b(?:that|which) nothing (?:else )?(?:reads?|"
     r"uses?|needs?|refers|waits|knows)\b", 'active and positive: "unused", "unpinned"'),
    (r"\b(?:no|every|some|any)body(?:'?s)?\b", "name who: the user, a caller, an instruction"),
    (r"\bwho(?:so)?ever\b", "name who"),
    (r"\bstrangers?\b|\bmeans? no good\b", '"unknown client", "untrusted input", "malicious client"'),
    (r"\b(?:InvalidArgument|NotFound|AlreadyExists|Unavailable|FailedPrecondition|Aborted|"
     r"Unimplemented)\b[^.;]* if there is none\b", "what is missing: \"NotFound if the job has no checkpoint\""),
    (r"; (?:\"_*\"|-?\d+|null|nullopt|empty|zero|false|nothing) if there (?:is|are) none\b",
     'one sentence: "..., or null if there is none"'),
    (r"\b(?:elements?|columns?|rows?|bytes?|bits?|numbers?|results?|values?|dimensions?|text|padding)"
     r"(?: (?!that\b)[\w.]+){0,3} behind\b|\bbehind (?:reshapes?|bitcasts?|get-tuple-elements?|the end)\b",
     '"after", "beyond", "looking through"'),
    (r"\bthe begin\b", '"the beginning"'),
    (r"\b(?:goes|go) (?:soon|after a while)\b|\bfound lost\b", '"is removed", "is counted as lost"'),
    (r"\bone (?:element type|type|name|kind) an? \w+", '"one ... per ..."'),
    (r"\bwhere to stand\b|\bto blame\b|\bdoes? harm\b|\bas they like\b", "the technical term"),
    (r"\bfor people\b", '"for display"'),
    (r"\b(?:any more|no more) goes\b|\b(?:went|go|goes|gone|gets?|got) lost\b", '"is dropped", "was lost"'),
    # Figures of speech.
    (r"\bbrains?\b|\bforsaken\b|\bgood-?byes?\b|\bsiblings? of theirs\b", "the technical term"),
    (r"\b(?:clear|last|own) words?\b(?! of\b)", '"a clear error", "the last lines of its output"'),
    (r"\bin (?:its|their) words\b", '"with their own message"'),
    (r"\b(?:stands?|stood) (?:at|before|in(?! for)|behind|beside|there|once|alone|beyond|above|below|between|after|"
     r"where)\b",
     '"is", "is placed", "is stored"'),
    (r"\bas (?:it|they) stands?\b", '"unchanged", "as written"'),
    (r"\b(?:gives?|giving|gave) way\b", '"yields"'),
    (r"\bnow and then\b", '"sometimes", "regularly"'),
    (r"\bso many\b(?! (?:\w+ )+that\b)", '"this many", or what is counted'),
    (r"\b(?:lies|lie|lay) (?:there|before|behind|beside|around|where|above it|below it|once|beyond)\b",
     '"is", "is stored"'),
    (r"\b(?:go|goes|went|going|gone) on\b(?! (?:the|a|top|top of)\b)", '"continues"'),
    (r"(?<!to )\b(?:hear|hears|hearing)\b(?! from)|\bheard\b(?! from)", '"receives", "is told"'),
    ("".join(f"(?<!{user} )" for user in USERS) + r"\bwants\b", '"needs", "requires", "expects"'),
    (r"\bpric(?:e|es|ed|ing)\b", '"cost"'),
    (r"\b(?:made|makes?|making|kept|keeps?|needs?|needed|wants?|wanted|holds?|held|stays?|becomes?|gets?|got|left|read|"
     r"arrives?) whole\b|\b(?:is|are|be|been) (?:not )?whole(?=[.,;:)]|$)", '"replicated", "all-gathered", "complete"'),
    (r"\bthe whole of\b", '"all of"'),
    (r"\bsums? (?:that )?waits?\b|\bwaiting (?:partial )?sums?\b|\bsums that are waiting\b", '"deferred reduction"'),
    (r"\banew\b|\bwhence\b|\bthence\b|\bthereof\b|\bwhereof\b|\btherein\b|\bhitherto\b|\blest\b|\balas\b|\bere\b|"
     r"\bwhilst\b|\bamongst\b|\btill\b|\bin vain\b|\bfor ever\b|\bfor want of\b|\bsave for\b|\bbut for\b",
     'modern words: "again", "until", "except for", ...'),
    (r"\bat home\b|\bhomeless\b", '"in its folder"'),
    (r"\bwhat is left of\b|\bwhat(?:ever)? remains of\b", '"the rest of", "the remaining ..."'),
    (r"\bof (?:ours|theirs|hers|yours)\b", '"our", "its", or the name of the owner'),
    (r"(?<!set )(?<!step )\baside(?=[.;,)]|$)", '"ignoring ..."'),
    (r"\band (?:alike|such like)\b", '"and similar"'),
    (r"\bshall\b", '"must", "does", or the imperative'),
    (r"\bwould like\b", '"requires", "expects"'),
    (r"\bin the making\b", '"under construction", or the state by its name'),
    (r"\bone(?: (?!of\b)[\w.-]+){0,3} an? (?:line|job|op|opcode|worker|collective|computation|instruction|row|folder|"
     r"file|member|commit|shard|call|leaf|subcommand|step|device)(?=[.,;:)]|$)", '"one ... per ..."'),
    (r"\b(?:is|are|was|were) there already\b|\bwhat is there\b|(?<!why they )(?<!why it )\b(?:is|are|was|"
     r"were) there(?=[.,;:)]| and\b|$)", '"exists", "has arrived", "is present"'),
    (r"\b(?:has|have) not(?=[.,;:)]| are\b| is\b|$)", '"does not have"'),
    (r"\btaken note of\b|\btakes? note of\b", '"recorded"'),
    (r"\btold apart\b", '"distinguished by"'),
    (r"\b(?:is|are|was|were|be) (?:another one|others)\b", '"differs", "is a different ..."'),
    (rf"\banother (?:\w+ )?(?!{COMPARATIVES})\w+ than\b", '"a different ... than"'),
    (rf"(?<!any )(?<!no )(?<!the )\bother (?:\w+ )?(?!{COMPARATIVES})\w+ than\b", '"... other than"'),
    (BEGIN + r"Before,", '"Until this change", "At first", or "used to"'),
    (r"\bif (?:that|this|it) remains(?=[.,;:)]|$)", '"if this error persists"'),
    (r"\b(?:a|one|two|several|no) words? too (?:many|few)\b", "plain words"),
    (r"\boff loopback\b", '"on an address other than loopback"'),
    (r"\bdump_folder\b", '"dump_directory"'),
    (r"\bresp\.", '"respectively"'),
    (r"(?<!\band), also (?:if|while|before|after|without)\b", '"even if", "even while", ...'),
    (r"\b(?:beside the compilation|beside computation|small beside)\b", '"during", "in addition to", "compared with"'),
]

# Also in names. British stems, each the part before "-ise", "-ising", ...
STEMS = ("canonical normal initial optim serial recogn memo synchron parallel vector minim maxim summar special "
         "general linear material util organ stabil final random token standard quant discret factor character emphas "
         "priorit categor visual legal equal penal custom local external internal author local symmetr tabular "
         "contextual dual real flatten central neutral digit immun apolog capital monopol polar scalar regular").split()
SPELLING = [
    (r"(?i)(?:" + "|".join(STEMS) + r")is(?:e|es|ed|er|ers|ing|ation|ations)(?-i:(?![a-z]))", "American: -ize"),
    (r"(?i)neighbour|behaviour|fulfil(?!l)|labell(?:ed|ing)|colour|favour|honour|flavour|modell(?:ed|ing)|travell(?:ed|"
     r"ing)|artefact|(?<![a-z])analys(?:e|ed|es|ing)(?![a-z])(?<!analyses)|catalogue|(?<![a-z])centred?(?![a-z])|"
     r"(?<![a-z])learnt|(?<![a-z])spelt|programme(?![a-z])|licence|defence|(?<![a-z])grey(?![a-z])|"
     r"(?<![a-z])(?:signall|dialled|levell|marshall|channell|totall(?!y))|"
     r"(?<![a-z])(?:to|in|out|up|down|on|back)wards(?![a-z])",
     "American spelling"),
    # absl::CancelledError, kCancelled and gRPC's CANCELLED are names of others.
    (r"(?<![A-Za-z])cancell(?:ed|ing)(?![a-z])", '"canceled", "canceling"'),
    (r"\bk(?:Most|Longest|Largest|Biggest|Highest)[A-Z]\w*", "constants of this kind are called kMax..."),
    (r"(?<![a-z])(?:un)?heard(?![a-z]| from)|(?:H|Unh)eard(?![a-z]| from)|(?<![A-Za-z])[Hh]ears?_|"
     r"(?<=[a-z])Hears?(?![a-z])|_hears?\b", '"received", "awaited"'),
]


def parts_of_matches(items):
    """Returns texts in lower case, one of which occurs in each match of a parsed regular expression, or None if no such
    texts are known. A text that contains none of them need not be searched, which is much slower."""
    best, literal = None, ""

    def take(parts):
        nonlocal best
        if parts and "" not in parts and (best is None or min(map(len, parts)) > min(map(len, best))):
            best = parts

    for operator, argument in [*items, (None, None)]:
        if operator is regex.LITERAL:
            literal += chr(argument).lower()
            continue
        take({literal})
        literal = ""
        if operator is regex.SUBPATTERN:
            take(parts_of_matches(argument[-1]))
        elif operator is regex.MAX_REPEAT and argument[0] > 0:
            take(parts_of_matches(argument[-1]))
        elif operator is regex.BRANCH:
            branches = [parts_of_matches(branch) for branch in argument[1]]
            take(None if None in branches else set().union(*branches))
    return best


def compiled(pattern, flags, advice):
    """Returns (the compiled pattern, texts in lower case of which each match contains one, advice)."""
    parts = parts_of_matches(parser.parse(pattern)) if parser else None
    return re.compile(pattern, flags), parts or {""}, advice


def possible(rules, text):
    """Returns the rules that may match in `text` or in a part of it, each with the texts that occur in `text`."""
    lower = text.lower()
    found = []
    for expression, parts, advice in rules:
        present = [part for part in parts if part in lower]
        if present:
            found.append((expression, present, advice))
    return found


COMPILED = [compiled(pattern, 0 if pattern.startswith(BEGIN) else re.IGNORECASE, advice) for pattern, advice in RULES]
COMPILED_SPELLING = [compiled(pattern, 0, advice) for pattern, advice in SPELLING]
QUOTED = re.compile(r'`[^`]*`|"[^"]*"')


def blank_quotations(text):
    return QUOTED.sub(lambda match: '"' + "_" * (len(match.group()) - 2) + '"', text)


def findings_in(text, rules=COMPILED):
    """Returns [(offset, what was found, what to write)] of one comment, message or paragraph."""
    plain = blank_quotations(text)
    return [(match.start(), match.group().strip(), advice)
            for expression, _, advice in possible(rules, plain) for match in expression.finditer(plain)]


TEST_NAME = re.compile(r"^TEST(?:_[FP])?\(\w+,\s*(\w+)\)|^ +def test_(\w+)\(", re.MULTILINE)


def test_names(source):
    """Returns (line, words) of the names of tests, which are prose, too: EndsEarly is "ends early"."""
    names = []
    for match in TEST_NAME.finditer(source):
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", match[1] or match[2])
        names.append((source.count("\n", 0, match.start()) + 1, words.replace("_", " ").lower()))
    return names


def findings_in_names(line, rules=COMPILED_SPELLING):
    chosen = possible(rules, line)
    plain = blank_quotations(line) if chosen else ""
    return [(match.start(), match.group(), advice)
            for expression, _, advice in chosen for match in expression.finditer(plain)]


TRAILING_COMMENT = re.compile(r'^\s*[^\s/](?:[^"/]|"(?:\\.|[^"\\])*"|/(?!/))*\s\s(// .*)$')
UNFINISHED = re.compile(r"^// [A-Z]\S*( \S+){3,}(?<![.:;!?\")\]}])$")  # A sentence without its end.
C_TOKEN = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/', re.DOTALL)
HASH_COMMENT = re.compile(r"(?:^|(?<=\s))#(?!!)\s?(.*)$")


def c_texts(source):
    """Returns (line, kind, parts) of every comment block and string literal of C++ or proto source; parts are
    [(line, text)]."""
    texts = []
    last_comment_line = -1
    line = 1
    position = 0
    for token in C_TOKEN.finditer(source):
        line += source.count("\n", position, token.start())
        position = token.start()
        text = token.group()
        alone = source[source.rfind("\n", 0, token.start()) + 1:token.start()].isspace() or \
            source[token.start() - 1:token.start()] in ("\n", "")
        if text.startswith("//"):
            text = text.lstrip("/").removeprefix("<").strip()
            if alone and texts and last_comment_line == line - 1 and text:
                texts[-1][2].append((line, text))
            else:
                texts.append((line, "comment", [(line, text)]))
            last_comment_line = line if alone and text else -1
        elif text.startswith("/*"):
            texts.append((line, "comment", [(line + i, part.strip(" */")) for i, part in enumerate(text.split("\n"))]))
        elif text.startswith('"') and is_message(text[1:-1]):
            texts.append((line, "message", [(line, text[1:-1].replace('\\"', '"'))]))
    return texts


def is_message(text):
    """Whether the text has two words or more of prose, and is not HLO, JSON, a path or a format string."""
    return len(re.findall(r"(?<![\w%@])[a-z]{2,}(?![\w(=])", text)) >= 2 and not re.search(r"[{}=%]|\\n", text)


def hash_texts(source):
    """Returns (line, kind, parts) of the comments of a shell, CMake or text file."""
    texts = []
    last = -1
    for number, line in enumerate(source.split("\n"), 1):
        match = HASH_COMMENT.search(line)
        if not match:
            continue
        alone = line.lstrip().startswith("#")
        if alone and last == number - 1 and match.group(1):
            texts[-1][2].append((number, match.group(1).strip()))
        else:
            texts.append((number, "comment", [(number, match.group(1).strip())]))
        last = number if alone and match.group(1) else -1
    return texts


def python_texts(path):
    """Returns (line, kind, parts) of the comments, docstrings and messages of a Python file."""
    texts = []
    last = -1
    with tokenize.open(path) as stream:
        for token in tokenize.generate_tokens(stream.readline):
            line = token.start[0]
            if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
                part = (line, token.string.lstrip("# ").strip())
                alone = token.line.lstrip().startswith("#")
                if alone and last == line - 1:
                    texts[-1][2].append(part)
                else:
                    texts.append((line, "comment", [part]))
                last = line if alone else -1
            elif token.type == tokenize.STRING or tokenize.tok_name[token.type] == "FSTRING_MIDDLE":
                text = re.sub(r'^[rbfuRBFU]*("""|\'\'\'|"|\')|("""|\'\'\'|"|\')$', "", token.string)
                if '"""' in token.string:
                    parts = []
                    code = " " * (token.start[1] + 4)  # The indentation of code examples in a docstring.
                    for i, part in enumerate(text.split("\n")):
                        if not part.strip() and parts:
                            texts.append((parts[0][0], "comment", parts))
                            parts = []
                        elif part.strip() and not part.startswith(code):
                            parts.append((line + i, part.strip()))
                    if parts:
                        texts.append((parts[0][0], "comment", parts))
                elif is_message(re.sub(r"{[^}]*}", "", text)):
                    texts.append((line, "message", [(line, re.sub(r"{[^}]*}", "_", text))]))
    return texts


def markdown_texts(source):
    texts = []
    in_code = False
    parts = []

    def flush():
        nonlocal parts
        if parts:
            texts.append((parts[0][0], "text", parts))
        parts = []

    for number, line in enumerate(source.split("\n"), 1):
        if line.startswith("```"):
            in_code = not in_code
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if in_code or line.startswith("```") or not line.strip():
            flush()
        elif cells:
            flush()
            texts.extend((number, "text", [(number, cell)]) for cell in cells if cell)
        else:
            if re.match(r"\s*([-*#]|\d+\.) ", line) or line.startswith("#"):
                flush()
            parts.append((number, re.sub(r"^\s*(?:[-*]|#+|\d+\.) ", "", line).strip()))
    flush()
    return texts


def continued_comments(source):
    """Returns (line, text) of comments that follow code on their line and continue on the next line, which may have
    code."""
    lines = source.split("\n")
    found = []
    for number, (line, after) in enumerate(zip(lines, lines[1:], strict=False), 1):
        match = TRAILING_COMMENT.match(line) if "  // " in line else None
        next_match = TRAILING_COMMENT.match(after) if match else None
        if match and after.strip().startswith("// ") and after.index("//") == match.start(1):
            found.append((number, match[1]))
        elif match and next_match and UNFINISHED.search(match[1]) and re.match(r"// [a-z(]", next_match[1]):
            found.append((number, match[1]))
    return found


MAX_COLUMNS = 120


def overlong_lines(source, suffix):
    """Returns (line, text) of the lines of a Markdown page or a script that are too long. Lines without a space at which
    they could be broken may have any length, and so may the code and the tables of a page."""
    found = []
    in_code = False
    for number, line in enumerate(source.split("\n"), 1):
        in_code ^= suffix == ".md" and line.lstrip().startswith("```")
        is_kept = in_code or (suffix == ".md" and line.startswith(("|", "    ")))
        if len(line) > MAX_COLUMNS and not is_kept and " " in line.strip():
            found.append((number, line[MAX_COLUMNS - 20:]))
    return found


@functools.cache
def texts_of(path):
    """Returns (line, kind, [(line, text)]) of everything in a file that is prose."""
    if path.suffix == ".py":
        return python_texts(path)
    source = path.read_text(errors="replace")
    if path.suffix == ".md":
        return markdown_texts(source)
    if path.suffix in (".cc", ".h", ".def", ".c", ".proto"):
        return c_texts(source)
    return hash_texts(source)


def check(path):
    """Returns ["FILE:LINE: ..."] of one file."""
    name = path.relative_to(ROOT).as_posix()
    problems = []
    source = path.read_text(errors="replace")
    spelling = possible(COMPILED_SPELLING, source)
    texts = [(kind, parts, " ".join(text for _, text in parts)) for _, kind, parts in texts_of(path)]
    rules = possible(COMPILED, "\n".join(joined for _, _, joined in texts))
    for kind, parts, joined in texts:
        if kind == "message":  # The loop over lines below skips quotations.
            problems += [(line, found, advice) for line, text in parts
                         for _, found, advice in findings_in_names(text, spelling)]
        for offset, found, advice in findings_in(joined, rules):
            end = 0
            for line, text in parts:
                end += len(text) + 1
                if offset < end:
                    problems.append((line, found, advice))
                    break
    if path.suffix in (".cc", ".h", ".def", ".c", ".proto"):
        problems += [(number, text, "a comment of several lines above its code")
                     for number, text in continued_comments(source)]
    if path.suffix in (".md", ".py", ".sh"):  # house_test checks the columns of C++ files.
        problems += [(number, text, f"at most {MAX_COLUMNS} columns")
                     for number, text in overlong_lines(source, path.suffix)]
    for number, words in test_names(source):
        problems += [(number, found, advice) for _, found, advice in findings_in(words)]
    for number, line in enumerate(source.split("\n"), 1):
        problems += [(number, found, advice) for _, found, advice in findings_in_names(line, spelling)]
    return [f'{name}:{line}: "{found}": write {advice}' for line, found, advice in sorted(problems)]


def tree_files():
    """Returns every file of the tree, except in build output and Git's and Python's folders, to which other tests may
    write."""
    files = []
    for at, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in (".git", "__pycache__") and
                      (name != "build" or pathlib.Path(at) != ROOT)]
        files += [pathlib.Path(at, name) for name in names]
    return sorted(files)


@functools.cache
def source_files():
    """Returns every file whose prose is checked. The rules and their tests are excluded: they quote what is refused."""
    suffixes = {".cc", ".h", ".def", ".c", ".proto", ".py", ".sh", ".md", ".cmake"}
    files = []
    for path in tree_files():
        parts = path.relative_to(ROOT).parts
        if any(part == "testdata" or part.startswith(".") for part in parts):
            continue
        if path.name in ("prose.py", "prose_test.py") or "egg-info" in path.as_posix():
            continue
        if (path.suffix in suffixes or path.name == "CMakeLists.txt") and path.is_file():
            files.append(path)
    return files


def chosen_files(arguments):
    """Returns the checked files under the paths in `arguments`, or all checked files if there are no arguments."""
    chosen = [pathlib.Path(argument).resolve() for argument in arguments]
    if not chosen:
        return source_files()
    return [path for path in source_files() if any(path == c or c in path.parents for c in chosen)]


def main(arguments):
    problems = [problem for path in chosen_files(arguments) for problem in check(path)]
    print("\n".join(problems) if problems else "nothing found")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
