// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy/yamltree"
)

var deviceNameSchema = func() *schema {
	s := bare(`^[^/:\s]+$`)
	s.MaxLength = maxDevice
	return define("device", s.titled("device name").described("The name of a network device.").withExamples(`"eth0"`))
}()

var devicesSchema = func() *schema {
	s := listOf(anyOf(deviceNameSchema, define("deviceOptions", object(deviceKeys).titled("`{name, xdp}`"))))
	s.AnyOf[1].UniqueItems = true
	return s
}()

var deviceKeys = []key[Device]{
	{name: "name", value: into(word(deviceNameSchema, readDevice), func(to *Device) *string { return &to.Name }),
		doc: "The name of the device.", examples: `"eth1"`, must: "write name: eth1"},
	{name: "xdp", value: custom(func(p place, to *Device, v *node) { to.XDP = p.xdp(v) }, xdpSchema),
		doc: "When the program runs at XDP on this device. When left out: as `xdp` of the policy says.", examples: `"never"`},
}

// devices parses the key devices. A device is its name, or a mapping with its name and its settings.
func (p place) devices(to *Policy, v *node) {
	if v.Kind != yamltree.List {
		p.device(to, v, v)
		return
	}
	if len(v.Items) == 0 {
		p.each("devices", v, nil)
	}
	for _, n := range v.Items {
		p.device(to, n, &node{Pos: v.Pos, Kind: yamltree.List, Items: []*node{n}})
	}
}

// device parses one of the devices, n. list is a list with n alone, or n if the key has no list.
func (p place) device(to *Policy, n, list *node) {
	d := Device{Pos: n.Pos}
	if n.Kind == yamltree.Mapping {
		readKeys(p.in("devices"), "a device", n, deviceKeys, &d)
	} else {
		p.each("devices", list, func(w *node) {
			f := deviceFlaw(w.Text)
			if f != nil {
				p.flawed(w.Pos, "devices", listHint(f, "devices", w, list))
				return
			}
			d.Name = w.Text
		})
	}
	switch {
	case d.Name == "":
	case slices.Contains(to.DeviceNames(), d.Name):
		p.errorf(d.Pos, "devices names %s twice", wording.Quote(d.Name)).Hint = "remove one of them"
	default:
		to.Devices = append(to.Devices, d)
	}
}

const maxDevice = 15 // IFNAMSIZ less the final zero

func readDevice(name string) (string, *flaw) { return name, deviceFlaw(name) }

// deviceFlaw returns the flaw of the name of a network device, nil if it is valid (kernel net/core/dev.c, dev_valid_name).
func deviceFlaw(name string) *flaw {
	bad := func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) }
	switch {
	case strings.ContainsAny(name, "*?"):
		return want("the name of a network device, as in eth0", name).hintf("patterns are not supported: name each device")
	case name == "" || name == "." || name == ".." || strings.ContainsFunc(name, bad):
		return want("the name of a network device, as in eth0", name).hintf("`ip -br link` shows the names")
	case len(name) > maxDevice:
		return want(fmt.Sprintf("the name of a network device, of at most %d characters", maxDevice), name).
			hintf("`ip -br link` shows the names")
	}
	return nil
}

// verdictWords are the values of default.
var verdictWords = words[Verdict]{{"pass", Pass}, {"drop", Drop}}

// repliesWords are the values of replies. The meaning of each is whether replies pass.
var repliesWords = words[bool]{{"pass", true}, {"drop", false}}

// byDefault parses the key default. reject is not allowed. Attackers forge source addresses, so the error messages would flood the owners of these
// addresses.
func (p place) byDefault(to *Policy, v *node) {
	to.DefaultPos = v.Pos
	to.Default = scalarOf(p, "default", v, func(text string) (Verdict, *flaw) {
		verdict, f := verdictWords.parse(text)
		if text == "reject" {
			f.hintf("end the rules with one that says `then: reject` for those who shall have an answer")
		}
		return verdict, f
	})
}

var profileWords = words[packet.Profile]{{"off", packet.Off}, {"standard", packet.Standard}, {"strict", packet.Strict}}

// checks parses the key checks. The value is a profile, or a mapping with a profile and changes to single checks.
func (p place) checks(to *Policy, v *node) {
	if v.Kind != yamltree.Mapping {
		if v.Kind == yamltree.List {
			p.errorf(v.Pos, "checks must be a profile or a mapping, got a list").Hint =
				"write off, standard or strict, or {name: on, …}"
			return
		}
		to.Checks = scalarOf(p, "checks", v, profileWords.parse).Checks()
		return
	}
	p = p.in("checks")
	pairs, _ := p.pairs("checks", v)
	for _, e := range pairs {
		if e.Key == "profile" {
			to.Checks = scalarOf(p, "profile", e.Value, profileWords.parse).Checks()
		}
	}
	for _, e := range pairs {
		if e.Key != "profile" {
			p.check(e, to)
		}
	}
}

// checksSchema has the checks with their meaning and profile.
var checksSchema = func() *schema {
	s := object([]key[Policy]{{name: "profile", value: value[Policy]{schema: profileWords.schema()},
		doc: "The profile that the other keys change.", usual: `"standard"`}})
	setting := define("checkSwitch", enum(append(switchEnum, "observe")...).titled("`on`, `off` or `observe`"))
	profiles := map[packet.Profile]string{packet.Standard: "standard", packet.Strict: "strict", packet.Optional: "no profile"}
	profile := s.complete
	s.complete = func(s *schema) {
		profile(s)
		for c := range packet.NumChecks {
			doc := fmt.Sprintf("Drops %s. In %s.", c.Info().Doc, profiles[c.Info().Profile])
			s.Properties = append(s.Properties, property{c.String(), setting.described(doc)})
		}
	}
	return define("checks", s.titled("check switches").described("`on` drops, `off` does not look, `observe` counts what the check would drop."))
}()

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

// setting is a policy's setting of one check.
type setting uint8

const (
	checkOff setting = iota
	checkOn
	checkObserve // count the packet, and continue
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

// checkNames returns the keys of checks.
func checkNames() []string {
	ns := []string{"profile"}
	for c := range packet.NumChecks {
		ns = append(ns, c.String())
	}
	return ns
}
