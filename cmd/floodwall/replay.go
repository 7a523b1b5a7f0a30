// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/attack"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
)

// replayFlags are the flags of replay.
type replayFlags struct {
	baseline string
	policy   string
	hosts    []string
}

func replayCommand(e *env) *cobra.Command {
	var f replayFlags
	c := &cobra.Command{
		Use:   "replay CAPTURE [--baseline FILE] [--policy POLICY]",
		Short: "run attack detection on a recorded attack",
		Long: "Replay runs the daemon's detection on a capture (pcap or pcapng), with automatic rules, and changes nothing.\n" +
			"It prints what would have been seen, suggested and dropped, and when.",
		Example: "  floodwall replay last-night.pcap --baseline yesterday.pcap\n" +
			"  floodwall replay last-night.pcap --baseline yesterday.pcap --policy /etc/floodwall/policy.yaml",
		Args: cli.Exactly(1, "a capture of the attack"),
		RunE: func(c *cobra.Command, args []string) error { return e.replay(c, args[0], &f) },
	}
	c.Flags().StringVar(&f.baseline, "baseline", "", "capture `file` of quiet times, of 12s at least; without it CAPTURE begins with them")
	c.Flags().StringVar(&f.policy, "policy", "", "take the settings of detect from this policy `file`")
	c.Flags().StringArrayVar(&f.hosts, "host", nil, "`address` of this host; may be given several times. By default the one that most packets have")
	e.JSONFlag(c)
	return c
}

func (e *env) replay(c *cobra.Command, file string, f *replayFlags) error {
	r := attack.Replay{Attack: file, Baseline: f.baseline, Detect: policy.UsualDetect()}
	for _, text := range f.hosts {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return wording.Hinted(fmt.Sprintf("--host %q is no address", text), "write an address as 192.0.2.1 or 2001:db8::1")
		}
		r.Hosts = append(r.Hosts, a)
	}
	if f.policy != "" {
		compiled, err := e.compiled(c.Context(), f.policy)
		if err != nil {
			return err
		}
		if r.Detect = compiled.Policy.Daemon.Detect; !r.Detect.On {
			return wording.Hinted(fmt.Sprintf("%s has no `detect`", f.policy), "add detect: {baseline: learn, auto: {}} to it, or leave --policy out")
		}
	}
	r.Detect.Baseline = cmp.Or(f.baseline, r.Detect.Baseline)
	out, err := periodic.Within(c.Context(), func() (*attack.Replayed, error) { return r.Run(c.Context()) })
	if err != nil {
		return err
	}
	if e.JSON {
		return e.PrintJSON(out)
	}
	e.printReplayed(out)
	return nil
}

func (e *env) printReplayed(r *attack.Replayed) {
	var hosts []string
	for _, a := range r.Hosts {
		hosts = append(hosts, a.String())
	}
	e.Println("%s packets to %s in %s, %s from there", wording.Count(int(r.Arrived)), strings.Join(hosts, ", "),
		wording.Span(time.Duration(r.Seconds*float64(time.Second)).Round(time.Second)), wording.Count(int(r.Left)))
	dropped := wording.Count(int(r.Dropped))
	if r.Arrived > 0 {
		dropped += fmt.Sprintf(", %.1f%%", 100*float64(r.Dropped)/float64(r.Arrived))
	}
	e.Println("dropped by automatic rules: %s", dropped)
	for _, t := range r.Events {
		e.Println("%8.1f s  %s", t.Seconds, t.Text)
	}
	for _, report := range r.Reports {
		e.Println("")
		e.printAttackFacts(report)
		e.printSteps(report)
		e.printSuggested(report.Suggestion)
	}
	switch {
	case r.Arrived == 0 || r.Left == 0:
		direction := map[bool]string{true: "arrived at", false: "left"}[r.Arrived == 0]
		e.Println("nothing that %s %s is in the capture: without both directions an attack cannot be told from a crowd", direction, strings.Join(hosts, ", "))
		e.Println("record them with `tcpdump -i eth0 -w FILE`, or name the addresses of the host with --host")
	case len(r.Reports) == 0:
		e.Println("no attack would have been seen")
	}
}
