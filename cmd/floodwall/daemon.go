package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/internal/daemon"
)

func daemonCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "daemon",
		Short: "ban offenders, move rules to where they cost least; keep up with the host's addresses, keys of SYN cookies, and trials that ended",
		Long: "Daemon puts back what has gone of the policy: a device that returns gets it before it is set up, if it appears down; what\n" +
			"other tools remove from nftables is back at once, from iptables and ipset within a second or so, and each repair is\n" +
			"reported and counted in `status`. When something undoes repairs again and again, it waits up to 10 s between them. It bans who exceeds limits with `ban`, enters the host's own addresses into the set `local` of the XDP program as\n" +
			"they come and go, gives SYN cookies a new key every hour, and cleans up after a trial that nobody confirmed,\n" +
			"and after the last connection that SYNPROXY had begun before `unload`. When the host's costs are known\n" +
			"(`bench --calibrate`) it moves rules to the stage at which they cost least with the packets of\n" +
			"the moment, within seconds of an attack's start and end, and says why. Filtering never depends on it: without it\n" +
			"`local` is as of the last apply, as the key is, rules stay where they are, limits hold, and bans end when their time\n" +
			"has come, but nobody is banned anew.",
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error { return runDaemon(c.Context(), e) },
	}
}

func runDaemon(ctx context.Context, e *env) error {
	in, err := e.instance()
	if err != nil {
		return err
	}
	return daemon.Watch(ctx, in, e.freshCosts(), func(event daemon.Event) {
		if event.Err != nil {
			e.warning(message(event.Err))
			return
		}
		e.println("%s", event.Text)
	})
}
