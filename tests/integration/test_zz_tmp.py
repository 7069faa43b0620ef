"""Fills shown output of console blocks with what is printed."""
import sys, time
from pathlib import Path
import pytest
from tests.integration.test_tutorial import *
OUT=Path('/tmp/fill'); OUT.mkdir(exist_ok=True)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PAGES)
def test_fill(reader, name):
    text=(ROOT/name).read_text().splitlines()
    ins={}
    for step in steps(ROOT/name):
        if isinstance(step, WrittenFile):
            reader.write(step); continue
        if LOOKS.match(step.text): time.sleep(2.5)
        st, printed = reader.run(step.text)
        ins[step.line]=(st,[p for p in printed if p.strip()], len(step.shown))
    out=[]; skip=0
    for i,l in enumerate(text,1):
        if skip: skip-=1; continue
        out.append(l)
        if i in ins:
            st,p,n=ins[i]; out+=p
            if st: out.append(f"[[status {st}]]")
            skip=n
    (OUT/name.replace('/','_')).write_text('\n'.join(out)+'\n')
