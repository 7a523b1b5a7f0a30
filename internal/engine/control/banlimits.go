package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/os/instance"
	"github.com/floodwall/floodwall/policy"
)

// BanLimits are the limits with `ban` of the policy that runs, and the prefixes that are never banned.
type BanLimits struct {
	Key        uint64 // tells the policy from others: the number of a generation may come again
	Generation int
	Policy     string         // its file
	Limits     []BanLimit     // by the number of the limit that an offence has
	Allowlist  []netip.Prefix // those that the policy names, and those of the operators who applied it
}

// BanLimit is a limit of a rule.
type BanLimit struct {
	Rule string
	Ban  *manifest.BanAction // nil: it bans nobody
}

// BanLimits reads the limits with `ban` of the policy that runs, and opens the offences against them, unless known is the key of that
// policy. All results are nil if nothing runs or no limit bans.
func (in Instance) BanLimits(ctx context.Context, known uint64) (b *BanLimits, offences *datapath.Offences, err error) {
	l, err := generation.Find(ctx, in.Dir)
	if errors.Is(err, datapath.ErrNotLoaded) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	g := l.Generations[0]
	m := g.Manifest
	if g.Program == nil || m.BanningRule() == "" {
		return nil, nil, nil
	}
	b = &BanLimits{Key: m.Key, Generation: g.Number, Policy: m.File, Allowlist: slices.Concat(m.Never, m.Operators)}
	for _, limit := range m.Limits {
		b.Limits = append(b.Limits, BanLimit{limit.Rule, limit.Ban})
	}
	if m.Key != known {
		offences, err = g.Program.Offences()
	}
	return b, offences, err
}

// NobodyBanned begins the warning that bans wait for the daemon.
const NobodyBanned = "nobody is banned"

// bansWaitFor is the warning that bans wait for a daemon, "" if a daemon runs or no rule bans.
func (in Instance) bansWaitFor(m *manifest.Manifest) string {
	rule := m.BanningRule()
	if rule == "" || in.hasDaemon() {
		return ""
	}
	return fmt.Sprintf(NobodyBanned+" for rule %q while `floodwall daemon` does not run: start it; `apply --boot` has systemd start it after each reboot", rule)
}

// hasDaemon reports whether a daemon runs for the instance.
func (in Instance) hasDaemon() bool { return instance.LockOf(in.Dir).Held() }

// RunningPolicy are the settings of the policy that runs for the programs beside it.
type RunningPolicy struct {
	Key       uint64         // tells the policy from others
	Program   ebpf.ProgramID // decides in XDP; no other program has it, be it of the same policy; 0: none does
	File      string         // the policy
	Daemon    policy.Daemon
	Lists     bool           // it has sets whose content is exchanged
	Legacy    bool           // it has rules in iptables
	Allowlist []netip.Prefix // no program may ban them: those that the policy names, and those of the operators who applied it

	Temporary []manifest.Temporary // its temporary rules, some of which may have ended
}

// RunningPolicy reads those of the policy that runs.
func (in Instance) RunningPolicy(ctx context.Context) (RunningPolicy, error) {
	return in.Asked.Of(func() (w RunningPolicy, err error) {
		l, err := generation.Find(ctx, in.Dir)
		if err != nil {
			return w, err
		}
		defer l.Close()
		m := l.Generations[0].Manifest
		w = RunningPolicy{
			Key: m.Key, File: m.File, Lists: len(m.Live) > 0, Legacy: m.RulesetOf(netfilter.KindIptables) != nil,
			Allowlist: slices.Concat(m.Never, m.Operators), Temporary: m.Temporary,
		}
		if m.Daemon != nil {
			w.Daemon = *m.Daemon
		}
		w.Program, err = l.Generations[0].ProgramID()
		return w, err
	})
}

// DynamicSet is a dynamic set of the policy that runs, where "" stands for the only one, or bans.
func (in Instance) DynamicSet(ctx context.Context, name string) (manifest.Set, error) {
	l, err := generation.Find(ctx, in.Dir)
	if err != nil {
		return manifest.Set{}, err
	}
	defer l.Close()
	return ban.Named(l.Generations[0].Manifest, name)
}

// DaemonSettings is what the policy that runs says of the daemon.
func (in Instance) DaemonSettings(ctx context.Context) (policy.Daemon, error) {
	w, err := in.RunningPolicy(ctx)
	return w.Daemon, err
}

// settingsWaitFor is the warning that settings of the policy need a daemon, "" if one runs or none is needed.
func (in Instance) settingsWaitFor(m *manifest.Manifest) string {
	if m.Daemon == nil || in.hasDaemon() {
		return ""
	}
	return m.Daemon.Waits() + " while `floodwall daemon` does not run: start it; `apply --boot` has systemd start it after each reboot"
}
