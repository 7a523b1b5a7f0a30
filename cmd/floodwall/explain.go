// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/packet"
)

func explainCommand(e *env) *cobra.Command {
	var live bool
	var target string
	c := &cobra.Command{
		Use:   "explain POLICY|--live PACKET",
		Short: "which verdict a packet gets, and why",
		Long: "Explain says which verdict a packet gets, by which rule, and at which stage.\n" +
			"With --live it asks the program and the rules that are loaded, not a policy.",
		Example: "  floodwall explain policy.yaml 'tcp 198.51.100.7:1234 > 192.0.2.1:80 S'\n" +
			"  floodwall explain policy.yaml 'udp 198.51.100.7:999 > 192.0.2.1:53 dns=ANY,example.com'\n" +
			"  floodwall explain --live 'udp [2001:db8::7]:53 > [2001:db8::1]:4444 len=512'",
		RunE: func(c *cobra.Command, args []string) error {
			if live {
				return explain(c.Context(), e, "", args[0], "")
			}
			if err := checkTarget(c, target, targets(false)); err != nil {
				return err
			}
			return explain(c.Context(), e, args[0], args[1], plan.Target(target))
		},
	}
	c.Args = func(c *cobra.Command, args []string) error {
		if live {
			return cli.Exactly(1, "PACKET, a description in quotes")(c, args)
		}
		return cli.Exactly(2, policyArg+", and PACKET, a description in quotes")(c, args)
	}
	c.Flags().BoolVar(&live, "live", false, "ask what is loaded")
	c.Flags().StringVar(&target, "target", "xdp", "the `target` whose stages are meant: xdp, nftables or iptables")
	complete(c, "target", targets(false)...)
	e.JSONFlag(c)
	return c
}

// explain prints the verdict of a policy on the packet in line. An empty file name selects the running policy.
func explain(ctx context.Context, e *env, file, line string, target plan.Target) error {
	spec, err := operate.ParsePacket(line)
	if err != nil {
		return err
	}
	x, err := explanation(ctx, e, file, spec, target)
	if err != nil {
		return err
	}
	x.Translated = operate.Translated(ctx, spec)
	if e.JSON {
		return e.PrintJSON(x)
	}
	e.Println("packet   %s", x.Packet)
	e.Println("verdict  %s", x.Verdict)
	e.Println("reason   %s", placed(x.Reason, x.Policy, x.Line))
	e.Println("stage    %s", x.Stage)
	if x.Path != "" {
		e.Println("path     %s", paths[x.Path])
	}
	if x.Protection != "" {
		e.Println("through  the protection of service %s: %s", x.Protection, throughProtection(x))
	}
	if x.Translated != "" {
		e.Println("NAT      %s; rules mean the port that was asked for", x.Translated)
	}
	for _, p := range x.Passed {
		e.Println("passed   %s %s", placed(p.Name, x.Policy, p.Line), wouldDecide(p))
	}
	return nil
}

// paths describes, for each path, the part of the XDP program that decided.
var paths = map[control.Path]string{
	control.PathEntry:   "entry, generated for usual frames of this policy",
	control.PathGeneral: "general, the C program for every frame",
}

// throughProtection describes the effect of SYN cookies on packets that a protected rule passes.
func throughProtection(x control.Explanation) string {
	text := "in a flood (above `start`) its SYNs are answered with cookies, and what belongs to no connection is dropped"
	if x.Always {
		text = "every SYN is answered with a cookie, and what belongs to no connection is dropped (`always`)"
	}
	switch {
	case x.Active == nil:
	case *x.Active:
		text += "; cookies are sent now"
	default:
		text += "; cookies are not sent now"
	}
	return text
}

// placed returns a name with its line in the policy, or the name alone when line is 0.
func placed(name, policy string, line int) string {
	if line == 0 {
		return name
	}
	return fmt.Sprintf("%s (%s:%d)", name, policy, line)
}

// wouldDecide returns the verdict that another rule would have given, with its condition.
func wouldDecide(p control.Passed) string {
	limit := "its rate"
	if p.Connections > 0 {
		limit = fmt.Sprintf("%d connections", p.Connections)
	}
	switch {
	case p.Reply:
		return fmt.Sprintf("would decide if a packet of the flow had left: %s", p.Verdict)
	case p.Above && p.Observe:
		return "only counts what is above " + limit
	case p.Above:
		return fmt.Sprintf("would decide above %s: %s", limit, p.Verdict)
	}
	return fmt.Sprintf("only counts what it would %s", p.Verdict)
}

func explanation(ctx context.Context, e *env, file string, spec packet.Spec, target plan.Target) (control.Explanation, error) {
	if file != "" {
		c, err := e.compiled(ctx, file)
		if err != nil {
			return control.Explanation{}, err
		}
		return c.Explain(spec, target)
	}
	in, err := e.Host()
	if err != nil {
		return control.Explanation{}, err
	}
	return in.Instance.Explain(ctx, spec)
}
