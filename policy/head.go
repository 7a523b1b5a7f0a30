package policy

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// devices reads the key devices.
func (p place) devices(to *Policy, v *node) {
	first := map[string]Pos{}
	p.each("devices", v, func(w *node) {
		if f := deviceFlaw(w.Text); f != nil {
			p.flawed(w.Pos, "devices", listHint(f, "devices", w, v))
			return
		}
		if _, twice := first[w.Text]; twice {
			p.errorf(w.Pos, "devices names %s twice", wording.Quote(w.Text)).Hint = "remove one of them"
			return
		}
		first[w.Text] = w.Pos
		to.Devices = append(to.Devices, Device{w.Pos, w.Text})
	})
}

// deviceFlaw is what is wrong with the name of a network device, or nil (kernel net/core/dev.c, dev_valid_name).
func deviceFlaw(name string) *flaw {
	const most = 15 // IFNAMSIZ less the final zero
	bad := func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) }
	switch {
	case strings.ContainsAny(name, "*?"):
		return want("the name of a network device, as in eth0", name).hintf("patterns are not supported: name each device")
	case name == "" || name == "." || name == ".." || strings.ContainsFunc(name, bad):
		return want("the name of a network device, as in eth0", name).hintf("`ip -br link` shows the names")
	case len(name) > most:
		return want(fmt.Sprintf("the name of a network device, of at most %d characters", most), name).
			hintf("`ip -br link` shows the names")
	}
	return nil
}

// verdictWords are the values of default.
var verdictWords = map[string]Verdict{"pass": Pass, "drop": Drop}

// byDefault reads the key default. What nothing asked for gets no answer: a flood would be reflected.
func (p place) byDefault(to *Policy, v *node) {
	to.DefaultPos = v.Pos
	to.Default = scalarOf(p, "default", v, func(text string) (Verdict, *flaw) {
		verdict, f := choice(verdictWords)(text)
		if text == "reject" {
			f.hintf("end the rules with one that says `then: reject` for those who shall have an answer")
		}
		return verdict, f
	})
}

var profileWords = map[string]packet.Profile{"off": packet.Off, "standard": packet.Standard, "strict": packet.Strict}

// checks reads the key checks: a profile, or single checks over one.
func (p place) checks(to *Policy, v *node) {
	if v.Kind != yamltree.Mapping {
		if v.Kind == yamltree.List {
			p.errorf(v.Pos, "checks must be a profile or a mapping, got a list").Hint =
				"write off, standard or strict, or {name: on, …}"
			return
		}
		to.Checks = scalarOf(p, "checks", v, choice(profileWords)).Checks()
		return
	}
	p = p.in("checks")
	pairs, _ := p.pairs("checks", v)
	for _, e := range pairs {
		if e.Key == "profile" {
			to.Checks = scalarOf(p, "profile", e.Value, choice(profileWords)).Checks()
		}
	}
	for _, e := range pairs {
		if e.Key != "profile" {
			p.check(e, to)
		}
	}
}

// check switches one check on or off.
func (p place) check(e pair, to *Policy) {
	c, ok := packet.CheckNamed(e.Key)
	if !ok {
		p.unknown(e, checkNames())
		return
	}
	switch scalarOf(p, e.Key, e.Value, checkSetting) {
	case checkOn:
		to.Checks, to.Named = to.Checks.With(c), to.Named.With(c)
	case checkObserve:
		to.Checks, to.Observed = to.Checks.Without(c), to.Observed.With(c)
	default:
		to.Checks, to.Off = to.Checks.Without(c), to.Off.With(c)
	}
}

// setting is what a policy says about one check.
type setting uint8

const (
	checkOff setting = iota
	checkOn
	checkObserve // count, and go on
)

func checkSetting(text string) (setting, *flaw) {
	on, ok := switches[text]
	switch {
	case text == "observe":
		return checkObserve, nil
	case !ok:
		return checkOff, want("on, off or observe", text)
	case on:
		return checkOn, nil
	}
	return checkOff, nil
}

// checkNames are the keys of checks.
func checkNames() []string {
	ns := []string{"profile"}
	for c := range packet.NumChecks {
		ns = append(ns, c.String())
	}
	return ns
}
