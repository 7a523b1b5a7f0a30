// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// HostNotes returns notes on packets of this host that arrive or leave outside of the policy's devices: by another uplink, through IPsec, or on the
// loopback device.
func HostNotes(program *ir.Program, devices []string, target plan.Target) (notes []string) {
	if slices.Contains(devices, "lo") {
		notes = append(notes, "device lo has packets of this host to itself only: a policy is for the devices by which packets come from outside")
	}
	if program.Default == ir.Pass {
		return notes
	}
	replies := slices.ContainsFunc(program.Rules, func(r ir.Rule) bool { return r.Name == compile.RepliesRule && r.Reply })
	if replies && target == plan.TargetXDP {
		notes = append(notes, uplinkNotes(devices)...)
	}
	return append(notes, decryptedNotes(devices)...)
}

// uplinkNotes returns a note that names other devices with a default route. Answers to packets that leave by them may arrive on the policy's devices.
func uplinkNotes(devices []string) []string {
	others := facts.OtherUplinks(devices)
	if others == nil {
		return nil
	}
	list := strings.Join(others, ", ")
	return []string{fmt.Sprintf("there is a default route by %s, too, which `devices` leaves out: XDP does not see what leaves there, so an answer to it that comes by %s "+
		"meets `default: drop`, which it does not on nftables and iptables; add %s to `devices`", list, strings.Join(devices, ", "), list)}
}

// decryptedNotes returns a note that rules also decide about packets that IPsec decrypts by its policies, and that names a rule that passes them. The
// kernel drops packets from these networks that were not encrypted (xfrm_policy_check), so a forger gains nothing from that rule.
func decryptedNotes(devices []string) []string {
	from := facts.Decrypted()
	if from == nil {
		return nil
	}
	var names []string
	for _, p := range from {
		names = append(names, addrs.PrefixText(p))
	}
	return []string{fmt.Sprintf("IPsec decrypts packets by policies, and these come by %s once more: nftables, iptables, XDP in generic mode, mode tc and rules beside XDP decide them as any others, "+
		"XDP in native mode does not see them; `{from: [%s], then: pass}` lets them pass on all, or an xfrm interface has them come by a device of its own",
		strings.Join(devices, ", "), strings.Join(names, ", "))}
}

// repairOrder gives Floodwall's programs at tc their place before and after those of other tools.
func (t *transaction) repairOrder() error {
	if !slices.ContainsFunc(t.now.Program.Devices, func(d *datapath.Device) bool { return d.Misplaced() != nil }) {
		return nil
	}
	changed, err := t.state.Reorder(t.at.Reorder)
	for _, m := range changed {
		t.repaired.Ordered = append(t.repaired.Ordered, fmt.Sprintf("%s: no longer so", m))
	}
	return err
}

// checkOrder warns of programs of other tools that have taken the place of Floodwall's at tc.
func (s *Status) checkOrder(devices []*datapath.Device) {
	for _, d := range devices {
		for _, m := range d.Misplaced() {
			s.warn("%s; `floodwall repair` gives Floodwall its place again, and `floodwall daemon` does so by itself", m)
		}
	}
}

// laterNotes returns notes on programs of other tools that may change the addresses of packets after Floodwall has recorded the flow.
func (t *transaction) laterNotes() []string {
	if t.move != nil {
		return nil
	}
	return laterTexts(t.manifest, t.now)
}

// checkLater adds warnings with the same texts as laterNotes, for a running policy. Other tools may attach programs at any time.
func (s *Status) checkLater(m *manifest.Manifest, g *generation.Generation) {
	for _, text := range laterTexts(m, g) {
		s.warn("%s", text)
	}
}

// laterTexts returns the texts of laterNotes for a policy. `now` is the running generation, or nil when none runs.
func laterTexts(m *manifest.Manifest, now *generation.Generation) (texts []string) {
	i := slices.IndexFunc(m.Rules, func(r manifest.Rule) bool { return r.Name == compile.RepliesRule })
	if i < 0 {
		return nil
	}
	var ours []*datapath.Device
	if now != nil && now.Program != nil {
		ours = now.Program.Devices
	}
	inXDP := m.Rules[i].Stage == plan.StageXDP
	noted, remedy := "conntrack", "`--target xdp` sees the changed addresses where the program is a link of TCX; on any target a rule can let the answers pass"
	if inXDP {
		noted, remedy = "Floodwall's program", "a rule can let the answers pass"
	}
	for _, d := range m.Devices {
		if names := datapath.SeenLater(d, ours, !inXDP); names != nil {
			texts = append(texts, fmt.Sprintf("%s at tc of device %s sees what leaves after %s has: if it changes addresses, as network plugins do, the answers meet `default: drop`; %s",
				strings.Join(names, ", "), d, noted, remedy))
		}
	}
	return texts
}
