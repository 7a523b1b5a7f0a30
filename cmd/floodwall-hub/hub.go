// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/floodwall-hub/hub"
	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// defaultHub is the state directory of a hub.
const defaultHub = "/var/lib/floodwall-hub"

// hubFlags are the flags of all commands.
type hubFlags struct {
	dir     string
	address string
	cluster []string
	nats    string
	creds   string
	disk    int
	holds   time.Duration
	length  time.Duration
	why     string
	key     string
}

func hubInit(e *env, f *hubFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "init",
		Short: "make the keys and certificates of a new fleet",
		Long: "Init makes the state directory of a hub: its keys and its certificate. With --cluster it makes one directory for each of\n" +
			"three hubs: copy each to its host. The controller's key, in " + hub.ControllerFile + ", may ban any prefix.",
		Example: "  floodwall-hub init --address 192.0.2.10\n  floodwall-hub init --dir fleet --cluster a=192.0.2.10,b=192.0.2.11,c=192.0.2.12",
		Args:    cli.None,
		RunE:    func(c *cobra.Command, _ []string) error { return e.hubInit(c, f) },
	}
	c.Flags().StringVar(&f.address, "address", "", "`address` that nodes reach, HOST or HOST:PORT")
	c.Flags().StringSliceVar(&f.cluster, "cluster", nil, "three `hubs`, as NAME=HOST[:PORT]")
	c.Flags().StringVar(&f.nats, "nats", "", "`addresses` of an existing cluster, in place of a server of its own")
	c.Flags().StringVar(&f.creds, "creds", "", "`file` of credentials for it (default a new key)")
	c.Flags().IntVar(&f.disk, "disk", hub.DefaultDisk, fmt.Sprintf("`megabytes` of its disk that each hub may use, at least %d", hub.LeastDisk))
	return c
}

// peers parses the list of all hubs.
func (f *hubFlags) peers(c *cobra.Command) (list []hub.Peer, err error) {
	names := f.cluster
	switch {
	case f.address != "" && len(names) == 0:
		names = []string{"hub=" + f.address}
	case f.address != "" || len(names) == 0:
		return nil, cli.Usagef(c, "--address for one hub, --cluster for three, --nats for an existing cluster", "want one of --address, --cluster and --nats")
	case len(names) != 3:
		return nil, cli.Usagef(c, "with three hubs one may fail; two are no better than one", "flag --cluster: want three hubs, got %d", len(names))
	}
	for _, text := range names {
		name, address, ok := strings.Cut(text, "=")
		if !ok {
			return nil, cli.Usagef(c, "as in a=192.0.2.10", "flag --cluster: want NAME=HOST, got %q", text)
		}
		p, err := hub.NewPeer(name, address)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(list, func(o hub.Peer) bool { return o.Name == p.Name || o.Nodes == p.Nodes }) {
			return nil, cli.Usagef(c, "give each hub a name and an address of its own", "flag --cluster: %q comes twice", text)
		}
		list = append(list, p)
	}
	return list, nil
}

func (e *env) hubInit(c *cobra.Command, f *hubFlags) error {
	if f.nats != "" {
		if f.address != "" || len(f.cluster) > 0 {
			return cli.Usagef(c, "an existing cluster has its own addresses", "--nats goes without --address and --cluster")
		}
		if err := checkNATS(c, f.nats); err != nil {
			return err
		}
		return e.hubInitClient(f)
	}
	peers, err := f.peers(c)
	if err != nil {
		return err
	}
	if f.disk < hub.LeastDisk {
		return cli.Usagef(c, fmt.Sprintf("%d is usual", hub.DefaultDisk), "flag --disk: a hub needs %d MB at least, got %d", hub.LeastDisk, f.disk)
	}
	dirs, err := hub.Init(f.dir, peers, f.disk)
	if err != nil {
		return err
	}
	for i, dir := range dirs {
		e.Println("made %s for hub %s at %s", dir, peers[i].Name, peers[i].Nodes)
	}
	e.Println("the controller's key is %s", filepath.Join(f.dir, hub.ControllerFile))
	prefixes, policy := (&hub.Config{Hubs: peers, DiskMB: f.disk}).Holds()
	e.Println("each hub may use %d MB of its disk, which suffices for %s banned prefixes and policies of %s", f.disk, wording.Count(prefixes), wording.Bytes(uint64(policy)))
	return nil
}

// checkNATS checks the addresses of a cluster.
func checkNATS(c *cobra.Command, list string) error {
	for text := range strings.SplitSeq(list, ",") {
		u, err := url.Parse(strings.TrimSpace(text))
		if err != nil || u.Hostname() == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
			return cli.Usagef(c, "write each as tls://HOST:4222", "flag --nats: %q is no address of a NATS server", text)
		}
	}
	return nil
}

// hubInitClient creates the state of a hub that uses an existing NATS cluster. It prints the settings that the cluster needs.
func (e *env) hubInitClient(f *hubFlags) error {
	made, err := hub.InitClient(f.dir, f.nats, f.creds)
	if err != nil {
		return err
	}
	e.Println("made %s for the cluster at %s", f.dir, f.nats)
	e.Println("the controller's key is %s, its public key %s", filepath.Join(f.dir, hub.ControllerFile), made.Controller)
	if f.creds == "" {
		e.Println("add this user to the configuration of the cluster, which needs JetStream:")
	} else {
		e.Println("the user of %s needs these permissions, and the cluster needs JetStream:", f.creds)
	}
	e.Println("%s", made.User)
	return nil
}

func hubRun(e *env, f *hubFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "run",
		Short:   "run a hub",
		Long:    "Run runs the hub of a state directory until it is ended. One of three hubs may be away.",
		Example: "  floodwall-hub run --dir /var/lib/floodwall-hub",
		Args:    cli.None,
		RunE: func(c *cobra.Command, _ []string) error {
			config, err := hub.Read(f.dir)
			if err != nil {
				return err
			}
			return hub.Run(c.Context(), config, func(text string) { e.Println("%s", text) })
		},
	}
}

// atHub calls fn with a connection to the hubs.
func (f *hubFlags) atHub(fn func(*hub.Client) error) error {
	config, err := hub.Read(f.dir)
	if err != nil {
		return err
	}
	client, err := hub.Dial(config)
	if err != nil {
		return err
	}
	defer client.Close()
	return fn(client)
}

// askHubs requests the nodes from each hub. It calls fn with the names of all configured hubs and the answers that arrived.
func (f *hubFlags) askHubs(ctx context.Context, fn func(names []string, all []hub.Nodes) error) error {
	return f.atHub(func(h *hub.Client) error {
		all, err := h.Nodes(ctx)
		if err != nil {
			return err
		}
		return fn(h.Hubs(), all)
	})
}

func hubInvite(e *env, f *hubFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "invite NAME",
		Short: "print the command that joins a node",
		Long: "Invite prints the command that makes a host the node NAME. It can be used once, before it ends.\n" +
			"Whoever has the command can use it: send it as you would send a password.",
		Example: "  floodwall-hub invite web-1 --for 1h",
		Args:    cli.Exactly(1, "NAME, of a to z, 0 to 9 and -"),
		RunE: func(c *cobra.Command, args []string) error {
			if f.holds <= 0 || f.holds > 30*24*time.Hour {
				return cli.Usagef(c, "24h is usual", "flag --for: must be positive and at most 720h, got %v", f.holds)
			}
			if err := wire.CheckName(args[0]); err != nil {
				return cli.Usagef(c, "a name is of a to z, 0 to 9 and -, as web-1", "NAME: %v", err)
			}
			return f.atHub(func(h *hub.Client) error {
				i, err := h.Invite(c.Context(), args[0], f.holds)
				if err != nil {
					return err
				}
				e.Println("floodwall join %s", i.Token())
				return nil
			})
		},
	}
	c.Flags().DurationVar(&f.holds, "for", 24*time.Hour, "`time` for which the invitation holds")
	return c
}

func hubNodes(e *env, f *hubFlags) *cobra.Command {
	c := &cobra.Command{
		Use:     "nodes",
		Short:   "list the nodes of the fleet, and to which hub each is connected",
		Long:    "Nodes lists the nodes of the fleet: whether each has joined, and to which hub it is connected.",
		Example: "  floodwall-hub nodes --json",
		Args:    cli.None,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.askHubs(c.Context(), func(_ []string, all []hub.Nodes) error { return e.printNodes(all) })
		},
	}
	e.JSONFlag(c)
	return c
}

func hubStatus(e *env, f *hubFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "show how the hubs stand: nodes, bans, disk, and why one takes no bans",
		Long: "Status shows for each hub that answers how many nodes are connected to it, how many prefixes are banned, for how many its disk\n" +
			"suffices, and why it takes no bans now. It exits with 1 when a hub of the fleet does not answer, or takes none.",
		Example: "  floodwall-hub status\n  floodwall-hub status --json",
		Args:    cli.None,
		RunE:    func(c *cobra.Command, _ []string) error { return f.askHubs(c.Context(), e.printHubs) },
	}
	e.JSONFlag(c)
	return c
}

// fleetHub is a row of `hub status`.
type fleetHub struct {
	Hub       string `json:"hub"`
	Answers   bool   `json:"answers"`
	Connected int    `json:"connected"` // nodes
	Prefixes  int    `json:"prefixes"`
	Most      int    `json:"most"` // number of prefixes that fit on the disk
	Free      int64  `json:"free"` // free bytes of the disk
	Problem   string `json:"problem,omitempty"`
}

// printHubs prints the state of the hubs. names are all configured hubs.
func (e *env) printHubs(names []string, all []hub.Nodes) error {
	list, wrong := []fleetHub{}, 0
	for _, n := range all {
		list = append(list, fleetHub{n.Hub, true, len(n.Connected), n.Prefixes, n.Most, n.Free, n.Problem})
	}
	for _, name := range names {
		if !slices.ContainsFunc(list, func(h fleetHub) bool { return h.Hub == name }) {
			list = append(list, fleetHub{Hub: name, Problem: "does not answer"})
		}
	}
	slices.SortFunc(list, func(a, b fleetHub) int { return cmp.Compare(a.Hub, b.Hub) })
	t := wording.NewTable("hub", ">nodes", ">banned", ">at most", ">free", "problem")
	for _, h := range list {
		if h.Problem != "" {
			wrong++
		}
		t.Row(h.Hub, wording.Count(h.Connected), wording.Count(h.Prefixes), wording.Count(h.Most), wording.Bytes(uint64(h.Free)), cmp.Or(h.Problem, "-"))
	}
	if e.JSON {
		if err := e.PrintJSON(list); err != nil {
			return err
		}
	} else {
		e.Table(t)
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %s cannot take bans", wrong, wording.Things(len(list), "hub", "hubs"))
	}
	return nil
}

// fleetNode is a row of `hub nodes`.
type fleetNode struct {
	hub.Member
	Hub string `json:"hub,omitempty"` // the hub to which the node is connected
}

func (e *env) printNodes(all []hub.Nodes) error {
	list := []fleetNode{}
	for _, m := range all[0].Members {
		row := fleetNode{Member: m}
		for _, h := range all {
			if slices.Contains(h.Connected, m.Name) {
				row.Hub = h.Hub
			}
		}
		list = append(list, row)
	}
	if e.JSON {
		return e.PrintJSON(list)
	}
	t := wording.NewTable("node", "state", "since", "hub")
	for _, n := range list {
		t.Row(n.Name, string(n.State), n.Since.Format("2006-01-02 15:04 UTC"), cmp.Or(n.Hub, "-"))
	}
	e.Table(t)
	return nil
}

func hubRevoke(e *env, f *hubFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke NAME",
		Short: "remove a node from the fleet at once, and lift its bans",
		Long: "Revoke ends a node's connections, takes its key no more, and lifts all bans that it alone has made. It answers when the lifts\n" +
			"are kept. It may be repeated: then it lifts bans of the node that are left.",
		Example: "  floodwall-hub revoke web-1",
		Args:    cli.Exactly(1, "NAME, as `floodwall-hub nodes` lists it"),
		RunE: func(c *cobra.Command, args []string) error {
			return f.atHub(func(h *hub.Client) error {
				lifted, err := h.Revoke(c.Context(), args[0])
				if err != nil {
					return err
				}
				e.Println("revoked %s, and lifted %s of it", args[0], wording.Things(lifted, "ban", "bans"))
				return nil
			})
		},
	}
}

func hubBan(e *env, f *hubFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "ban PREFIX...",
		Short: "ban prefixes at all nodes, signed by the controller's key",
		Long: "Ban bans prefixes at all nodes, but for what a node never bans. The controller's key signs it, so prefixes may be wider\n" +
			"than nodes may ban, and no number of reporters is needed.",
		Example: "  floodwall-hub ban 198.51.100.0/22 --for 1h --why 'scans'",
		Args:    cli.Some("PREFIX"),
		RunE: func(c *cobra.Command, args []string) error {
			if f.length < time.Second || f.length > wire.Longest {
				return cli.Usagef(c, "1h is usual", "flag --for: must be 1s to %v, got %v", wire.Longest, f.length)
			}
			if len(f.why) > wire.MaxReason {
				return cli.Usagef(c, "say it shorter", "flag --why: at most %d bytes are kept, got %d", wire.MaxReason, len(f.why))
			}
			return e.hubSay(c, f, args, f.length)
		},
	}
	c.Flags().DurationVar(&f.length, "for", time.Hour, "`time` that the ban lasts, at most 720h")
	c.Flags().StringVar(&f.why, "why", "", "reason, as `text`")
	c.Flags().StringVar(&f.key, "key", "", "`file` of the controller's key (default "+hub.ControllerFile+" in --dir)")
	return c
}

func hubUnban(e *env, f *hubFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "unban PREFIX...",
		Short: "lift all bans of prefixes at all nodes, signed by the controller's key",
		Long: "Unban lifts every ban of exactly these prefixes that any node has made until now, also those of people.\n" +
			"A node alone lifts its own bans for the fleet, and those of others for itself (`floodwall unblock`).",
		Example: "  floodwall-hub unban 198.51.100.7",
		Args:    cli.Some("PREFIX"),
		RunE:    func(c *cobra.Command, args []string) error { return e.hubSay(c, f, args, 0) },
	}
	c.Flags().StringVar(&f.key, "key", "", "`file` of the controller's key (default "+hub.ControllerFile+" in --dir)")
	return c
}

// hubSay orders the controller to ban prefixes for the time length. If length is 0, the controller lifts the bans of these prefixes.
func (e *env) hubSay(c *cobra.Command, f *hubFlags, args []string, length time.Duration) error {
	var prefixes []netip.Prefix
	for _, text := range args {
		list, err := operate.EntryOf(text, nil)
		if err != nil {
			return cli.Usagef(c, "write each as an address or a prefix, as 198.51.100.7 or 198.51.100.0/22", "PREFIX: %v", err)
		}
		prefixes = append(prefixes, list...)
	}
	return f.atHub(func(h *hub.Client) error {
		if err := h.Say(c.Context(), f.key, prefixes, length, f.why); err != nil {
			return err
		}
		what := "lifted the bans of"
		if length > 0 {
			what = fmt.Sprintf("banned for %v", length)
		}
		e.Println("%s %s at all nodes", what, wording.Things(len(prefixes), "prefix", "prefixes"))
		return nil
	})
}
