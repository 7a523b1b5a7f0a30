// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy/yamltree"
)

var banKeys = []key[Ban]{
	{name: "for", value: into(banDuration, func(to *Ban) *time.Duration { return &to.For }),
		doc: "How long the ban lasts.", examples: `"10m"`, must: "say how long, as in for: 10m"},
	{name: "set", value: into(dynamicSetName, func(to *Ban) *string { return &to.Set }),
		doc: "The dynamic set. When left out: the only one that the policy has.", examples: `"bans"`},
	{name: "trust", value: into(trustForm, func(to *Ban) *bool { return &to.Forgeable }),
		doc: "`forgeable` counts every packet, so anybody can have any address banned. When left out: only packets of TCP connections that " +
			"this host has open count. SYNs do not, so a TCP sender that slows down when its packets are dropped is limited, but seldom " +
			"banned.", examples: `"forgeable"`},
}

var (
	banDuration = word(durationSchema, banTime)
	trustForm   = word(trustWords.schema(), readTrust)
	banSchema   = anyOf(durationSchema, object(banKeys)).titled("duration, or `{for, set, trust}`")
)

// dynamicSetName is the form of the name of a dynamic set.
var dynamicSetName = form[string]{nameSchema, func(p place, key string, v *node) string { return scalarOf(p, key, v, p.r.banSet) }}

// trustWords are the values of trust. They decide whether packets that belong to no TCP connection cause bans. Such packets can have a forged
// source, so they cause none by default.
var trustWords = words[bool]{{"forgeable", true}}

func readTrust(text string) (bool, *flaw) {
	ok, f := trustWords.parse(text)
	if f == nil {
		return ok, nil
	}
	return ok, f.hintf("leave trust out: then only packets of TCP connections count, which prove their source")
}

// ban parses the key ban: the duration of a ban, and the set to which offenders are added.
func (p place) ban(v *node) *Ban {
	var b Ban
	if v.Kind == yamltree.List {
		p.errorf(v.Pos, "ban must be a time or a mapping, got a list").Hint = "write ban: 10m"
		return nil
	}
	if v.Kind == yamltree.Word {
		b.For = scalarOf(p, "ban", v, p.r.shortBan)
	} else {
		seen := readKeys(p, "ban", v, banKeys, &b)
		if seen == nil || seen["set"] {
			return &b
		}
	}
	b.Set = p.onlyDynamic(v, "ban", "ban: {for: 10m, set: %s}")
	return &b
}

// shortBan parses the value of ban if the value is only a duration.
func (r *reader) shortBan(text string) (time.Duration, *flaw) {
	d, f := banTime(text)
	if set := strings.TrimPrefix(text, "$"); f != nil && r.sets[set] != noSet {
		f.hintf("write ban: {for: 10m, set: %s}", set)
	}
	return d, f
}

func banTime(text string) (d time.Duration, f *flaw) {
	d, f = duration(text)
	if f == nil {
		return d, nil
	}
	if _, isSwitch := switches[text]; isSwitch || text == "forever" || text == "permanent" {
		f.hintf("say for how long, as in 10m or 7d")
	}
	f.hintIfZero("leave ban out where nobody is to be banned")
	return d, f
}

// banSet parses the name of a dynamic set.
func (r *reader) banSet(text string) (string, *flaw) {
	if r.sets[text] == dynamicSet {
		return text, nil
	}
	f := want("the name of a dynamic set", text)
	bare := strings.TrimPrefix(text, "$")
	dynamic := r.setsOf(dynamicSet)
	switch near := wording.Nearest(bare, dynamic); {
	case r.sets[bare] == dynamicSet:
		f.hintf("write %s, without $", bare)
	case r.sets[bare] != noSet:
		f.hintf("the content of %s is fixed: declare another with {dynamic: true, max: 100000}", bare)
	case near != "":
		f.hintf("did you mean %q?", near)
	case len(dynamic) == 0:
		f.hintf("declare it, as in sets: {bans: {dynamic: true, max: 100000}}")
	default:
		f.hintf("the dynamic sets are %s", strings.Join(dynamic, ", "))
	}
	return "", f
}

// spared parses the key never: the addresses that are never banned. Dynamic sets are not allowed, because their content is not known when a ban is
// decided.
func (p place) spared(to *Policy, v *node) {
	to.Never = p.addrs("never", v)
	for _, a := range to.Never {
		switch {
		case p.r.sets[a.Set] == dynamicSet:
			p.errorf(a.Pos, "never must name addresses and sets with a fixed content, got %s", wording.Quote("$"+a.Set)).Hint =
				"what `floodwall block` puts there is up to you: never is about bans that nobody looks at"
		case p.r.sets[a.Set] == liveSet:
			p.errorf(a.Pos, "never must name addresses and sets with a fixed content, got %s", wording.Quote("$"+a.Set)).Hint =
				"who publishes the list would decide who is never banned: name its addresses, or a file"
		case a.Local:
			p.errorf(a.Pos, "never names local, which is spared anyway").Hint = "remove it"
		}
	}
}
