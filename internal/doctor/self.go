// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/host/boot"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
)

// self reports whether Floodwall runs, and the problems in its status.
func self(ctx context.Context, h *host) []Finding {
	if _, err := os.Stat(h.instance.Dir); errors.Is(err, fs.ErrPermission) {
		return []Finding{unseen("floodwall", err)}
	}
	s, err := h.instance.Status(ctx)
	switch {
	case err != nil && ctx.Err() != nil: // a timeout says nothing about the policy
		return []Finding{unseen("floodwall", fmt.Errorf("it took longer than %v", Deadline))}
	case errors.Is(err, datapath.ErrNotLoaded):
		return []Finding{notLoaded(err, h.instance.Dir)}
	case errors.Is(err, fs.ErrPermission):
		return []Finding{unseen("floodwall", err)}
	case err != nil:
		return []Finding{broken(err, h.instance.Dir)}
	}
	return append(h.judgeStatus(s), onTrial(h.instance.Dir)...)
}

// notLoaded returns the finding that no policy runs. err may say that a policy ran before.
func notLoaded(err error, dir string) Finding {
	f := Finding{
		ID: "floodwall", Severity: Note, Evidence: "no policy is loaded (" + dir + ")",
		Cost: "nothing of Floodwall filters this host",
	}
	if left := new(control.UnownedError); errors.As(err, &left) {
		f.Severity, f.Evidence, f.Cost = Problem, fmt.Sprintf("%v (%s)", err, dir), "rules of an earlier policy decide"
		return f.command("floodwall unload")
	}
	if err != datapath.ErrNotLoaded {
		f.Severity, f.Evidence = Problem, fmt.Sprintf("%v (%s)", err, dir)
		return f.command("floodwall repair")
	}
	return f.advice("floodwall apply POLICY; floodwall init POLICY writes a first one")
}

// broken returns the finding that a policy runs but some of its parts cannot be found.
func broken(err error, dir string) Finding {
	f := Finding{
		ID: "floodwall", Severity: Problem, Evidence: fmt.Sprintf("%v (from floodwall status, %s)", err, dir),
		Cost: "the policy may not be in force: packets may pass that it drops",
	}
	return f.command("floodwall apply policy.yaml")
}

// onTrial returns a finding about a policy on trial, if there is one.
func onTrial(dir string) []Finding {
	state, err := datapath.OpenState(dir, false)
	if err != nil {
		return []Finding{unseen("floodwall-trial", err)}
	}
	t, err := state.Trial()
	if err != nil {
		return []Finding{unseen("floodwall-trial", err)}
	}
	if t == nil {
		return nil
	}
	return []Finding{judgeTrial(t)}
}

func judgeTrial(t *datapath.Trial) Finding {
	f := Finding{ID: "floodwall-trial", Severity: Warning, Numbers: map[string]uint64{"generation": uint64(t.New), "returns_to": uint64(t.Old)}}
	back := fmt.Sprintf("generation %d decides", t.Old)
	if t.Old == 0 {
		back = "nothing is filtered"
	}
	if t.Expired() {
		f.Evidence = fmt.Sprintf("generation %d was not confirmed in time (from the kernel's deadline)", t.New)
		f.Cost = back + ", as before it"
		return f.command("floodwall rollback")
	}
	f.Evidence = fmt.Sprintf("generation %d is on trial for %.0f more seconds (from the kernel's deadline)", t.New, t.Left().Seconds())
	f.Cost = "then " + back + " again"
	return f.command("floodwall confirm")
}

// judgeStatus converts the status to findings.
func (h *host) judgeStatus(s *control.Status) []Finding {
	f := Finding{
		ID: "floodwall", Severity: OK, Numbers: map[string]uint64{"generation": uint64(s.Generation)},
		Evidence: fmt.Sprintf("generation %d of %s runs, target %s", s.Generation, s.Policy, s.Target),
	}
	found := []Finding{f}
	for _, o := range s.Open {
		found = append(found, judgeOpen(o))
	}
	for _, l := range s.Leftovers {
		f := Finding{ID: "floodwall-left", Severity: Problem, Evidence: l + " (from floodwall status)", Cost: "packets may be dropped that the policy passes"}
		found = append(found, f.command("floodwall repair"))
	}
	for _, w := range s.Warnings {
		found = append(found, h.judgeWarning(w, s.Policy))
	}
	for _, d := range s.Devices {
		if len(h.only) == 0 || slices.Contains(h.only, d.Name) {
			found = append(found, h.mode(d))
		}
	}
	found = append(found, answerRules(s.Policy)...)
	if s.Target == plan.TargetXDP {
		found = append(found, unprotected(s.Policy)...)
	}
	return found
}

// unprotected returns findings about services on UDP ports in the policy's file that are not protected from floods.
func unprotected(file string) (found []Finding) {
	p, err := policy.Read(file)
	if err != nil {
		return nil
	}
	services, ports := policy.Unprotected(p)
	for i, s := range services {
		f := Finding{
			ID: "floodwall-udp", Severity: Note, Evidence: fmt.Sprintf("nothing protects the UDP service %q from a flood (%s:%d)", s.Name, file, s.Pos.Line),
			Cost: "packets of forged sources reach the service, as many as come",
		}
		key, why := facts.ServedFloodKey(ports[i])
		if why != "" {
			f.Cost += "; " + why
		}
		found = append(found, f.policy(key))
	}
	return found
}

// answerRules returns findings about rules for answers in the policy's file that `replies` would replace. If the file is gone, it returns none.
func answerRules(file string) (found []Finding) {
	p, err := policy.Read(file)
	if err != nil {
		return nil
	}
	for _, n := range policy.ReplyNotes(p) {
		f := Finding{
			ID: "floodwall-replies", Severity: Note, Evidence: fmt.Sprintf("%s (%s:%d)", n.Msg, file, n.Pos.Line),
			Cost: "packets take conntrack, or pass that answer nothing",
		}
		found = append(found, f.policy("replies: pass"))
	}
	return found
}

// judgeOpen returns a finding about a part of the policy that is missing in the kernel.
func judgeOpen(o string) Finding {
	f := Finding{ID: "floodwall-open", Severity: Problem, Evidence: o + " (from floodwall status)", Cost: "packets may pass that the policy drops"}
	return f.command("floodwall repair")
}

// judgeWarning returns a finding about a warning in the status.
func (h *host) judgeWarning(w, policy string) Finding {
	f := Finding{ID: "floodwall-status", Severity: Warning, Evidence: w + " (from floodwall status)", Cost: "the policy is not in force as it was written"}
	do := "start"
	switch {
	case strings.HasPrefix(w, control.NobodyBanned):
		f.Cost = "who exceeds limits is dropped, but not banned"
	case strings.Contains(w, control.WithoutDaemon):
		f.Cost = "what the policy asks of the daemon is not done"
	case strings.HasPrefix(w, control.Unread):
		f.Cost, do = "nobody sees an attack, and no rule is added against one", "restart"
	default:
		return f.command("floodwall apply " + wording.Shell(policy))
	}
	if h.hasDaemonUnit() {
		return f.command("systemctl " + do + " " + boot.DaemonUnit)
	}
	return f.command("floodwall daemon")
}

// mode returns a finding about the mode in which a device runs Floodwall's program.
func (h *host) mode(d control.DeviceStatus) Finding {
	f := Finding{
		ID: "floodwall-mode", Severity: OK, Device: d.Name,
		Evidence: strings.TrimSpace(string(d.Stage)+" "+d.Mode) + " (from floodwall status)",
	}
	if d.Mode != string(datapath.Generic) {
		return f
	}
	f.Severity = Warning
	f.Cost = "the program runs after the kernel has made a packet of the frame, at several times the cost"
	devices, _ := h.devices()
	if slices.ContainsFunc(devices, func(o *device) bool { return o.name == d.Name && !o.runsNative() }) {
		f.Severity = Note
		return f.advice("nothing on this host: see xdp-native and xdp-setup")
	}
	return f.command("floodwall apply --mode auto policy.yaml")
}
