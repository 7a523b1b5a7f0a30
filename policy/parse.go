package policy

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// Stdin is the name of a policy that was read from standard input. Relative names of files in it start at the working directory.
const Stdin = "<stdin>"

// Read reads the policy in file. The error is Errors when the file can be read but its content has mistakes.
func Read(file string) (*Policy, error) {
	src, err := Source(file)
	if err != nil {
		return nil, err
	}
	return Parse(file, src)
}

// Source reads the text of the policy in file.
func Source(file string) ([]byte, error) {
	src, err := os.ReadFile(file)
	if err != nil {
		remedy := ""
		switch {
		case errors.Is(err, fs.ErrNotExist):
			remedy = "name the file of your policy; `floodwall init FILE` writes a first one"
		case errors.Is(err, syscall.EISDIR):
			remedy = "name the file, not its directory"
		}
		return nil, wording.WithHint(fmt.Errorf("reading policy: %w", err), remedy)
	}
	return src, nil
}

// Parse reads the policy in src; file is its name, for messages. It reports every mistake, not only the first: the
// error is always of type Errors. A file that is not YAML has one mistake, as nothing behind it can be understood.
func Parse(file string, src []byte) (*Policy, error) {
	p, err := ParseSound(file, src)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// ParseSound is Parse, but it returns a policy beside the error: that without the rules, services and sets that have mistakes. Sets without
// content stand for the latter. Such a policy is good only for finding further mistakes. It is nil when nothing was understood.
func ParseSound(file string, src []byte) (*Policy, error) {
	r := newReader(file)
	p := place{r: r}
	policy := Policy{File: file, Checks: packet.Standard.Checks()}
	doc, mistakes := yamltree.Read(src)
	for _, m := range mistakes {
		p.errorf(m.Pos, "%s", m.Msg).Hint = m.Hint
	}
	if doc != nil {
		r.top(p, doc, &policy)
	}
	if doc == nil {
		return nil, r.errs.sorted()
	}
	if len(r.errs) > 0 {
		r.leaveOut(&policy)
		return &policy, r.errs.sorted()
	}
	policy.Notes = notes(&policy)
	return &policy, nil
}

// The tree that the reader reads.
type (
	node = yamltree.Node
	pair = yamltree.Pair
)

// reader is what is known while a policy is read.
type reader struct {
	file    string
	errs    Errors
	sets    map[string]setKind // the policy's sets, known before the first rule is read
	given   map[string]bool    // names that the policy gives rules and services, known before one is made up
	reasons map[string]Pos     // names of rules and services so far: each is a counter

	inEntry map[string]bool // keys of rules and services
	lists   map[string]bool // keys whose values can be lists

	unsound map[Pos]bool // entries of lists that have mistakes

	patterns        map[string]bool // texts that rules look for so far
	tooManyPatterns bool            // and that has been reported
}

func newReader(file string) *reader {
	r := &reader{
		file: file, sets: map[string]setKind{}, given: map[string]bool{}, reasons: map[string]Pos{},
		patterns: map[string]bool{}, inEntry: map[string]bool{}, lists: map[string]bool{}, unsound: map[Pos]bool{},
	}
	for _, key := range append(names(ruleKeys), names(serviceKeys)...) {
		r.inEntry[key] = key != "name"
	}
	for _, key := range append(names(matchKeys), "devices", "contains", "per", "type", "types", "backends") {
		r.lists[key] = key != "payload"
	}
	return r
}

// leaveOut takes the rules and services with mistakes out of a policy.
func (r *reader) leaveOut(p *Policy) {
	p.Rules = slices.DeleteFunc(p.Rules, func(rule Rule) bool { return r.unsound[rule.Pos] })
	p.Services = slices.DeleteFunc(p.Services, func(s Service) bool { return r.unsound[s.Pos] })
}

// place is where in the policy the reader is. Messages begin with what: `rule "web": `.
type place struct {
	r    *reader
	what string
}

// in is a place inside p, which messages name after what p is.
func (p place) in(format string, args ...any) place {
	return place{p.r, p.what + fmt.Sprintf(format, args...) + ": "}
}

// errorf reports a mistake. The caller may set the Hint of what it returns.
func (p place) errorf(at Pos, format string, args ...any) *Error {
	e := &Error{File: p.r.file, Line: at.Line, Col: at.Col, Msg: p.what + fmt.Sprintf(format, args...)}
	p.r.errs = append(p.r.errs, e)
	return e
}

// flawed reports what is wrong with the value of key.
func (p place) flawed(at Pos, key string, f *flaw) {
	p.errorf(at, "%s %s", key, f.msg).Hint = f.hint
}

// topKeys are the keys of a policy.
var topKeys = []key[Policy]{
	{"devices", place.devices},
	{"default", place.byDefault},
	{"replies", func(p place, to *Policy, v *node) {
		to.Replies = scalarOf(p, "replies", v, choice(verdictWords)) == Pass
	}},
	{"checks", place.checks},
	{"sets", place.sets},
	{"rules", place.rules},
	{"services", place.services},
	{"untracked", place.untracked},
	{"never", place.spared},
	{"boot", func(p place, to *Policy, v *node) { to.BootClosed = scalarOf(p, "boot", v, choice(bootWords)) }},
	{"essential", place.essential},
	{"daemon", place.daemon},
	{"detect", place.detect},
	{"upstream", place.upstream},
	{"placement", func(p place, to *Policy, v *node) { to.Placement = scalarOf(p, "placement", v, readPlacement) }},
}

func (r *reader) top(p place, doc *node, to *Policy) {
	if sets := doc.Get("sets"); sets != nil {
		for _, s := range sets.Pairs {
			r.sets[s.Key] = kindOf(s.Value)
		}
	}
	for _, key := range []string{"rules", "services"} {
		if v := doc.Get(key); v != nil {
			r.noteNames(v.Items)
		}
	}
	seen := readKeys(p, "a policy", doc, topKeys, to)
	if !seen["boot"] {
		to.BootClosed = to.Default == Drop
	}
	to.Replies = to.Replies || to.Default == Drop && !seen["replies"]
	p.untrackedServices(to)
	p.untrackedConnections(to)
	if d := &to.Daemon; d.Detect.On { // an attack on a small service would have too few samples of a share that is fixed
		d.Sample, d.Adapts = cmp.Or(d.Sample, firstSample), true
	}
	if u := to.Daemon.Upstream; u != nil && u.Auto != StepNone && !to.Daemon.Detect.On && !seen["detect"] {
		p.errorf(doc.Get("upstream").Pos, "upstream: auto: %s needs `detect`, which sees attacks", u.Auto).Hint = "add detect: {baseline: learn}"
	}
	p.require(doc, seen, "devices", "name the devices that packets come in from: devices: [eth0]")
}
