// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/floodwall-bgp/speaker"
	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/bgp/flowspec"
	bgp "github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/internal/daemon/upstream"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
)

// defaultBGP is the state directory of `floodwall-bgp run`.
const defaultBGP = "/var/lib/floodwall-bgp"

// side returns the daemon's end of the socket in the directory dir.
func (e *env) side(dir string) (upstream.Side, error) {
	h, err := e.Host()
	return upstream.Side{RunningPolicy: h.RunningPolicy, Book: upstream.InState(h.State, e.BPFFS, datapath.DefaultDir), Dir: dir}, err
}

func bgpRun(e *env, dir func() string) *cobra.Command {
	var name, state string
	c := &cobra.Command{
		Use:   "run",
		Short: "speak BGP with the routers upstream, without rights",
		Long: "Run has sessions with the routers, and announces what the daemon and `floodwall-bgp announce` say. It ends each announcement\n" +
			"at its end by itself. As root it wants --user, and gives up all rights for those of that user.",
		Example: "  systemctl start floodwall-bgp\n  floodwall-bgp run --user nobody --dir /var/lib/floodwall-bgp",
		Args:    cli.None,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := speaker.Drop(name, dir(), state); err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(e.Stderr, nil))
			noise := slog.New(slog.NewTextHandler(e.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
			s := speaker.New(state, cli.Version(), log, noise)
			ctx, cancel := context.WithCancel(c.Context())
			ended := make(chan struct{})
			go func() { s.Run(ctx); close(ended) }()
			err := s.Serve(ctx, dir())
			cancel()
			<-ended
			return err
		},
	}
	c.Flags().StringVar(&name, "user", "", "`user` to become")
	c.Flags().StringVar(&state, "dir", defaultBGP, "`directory` for what is announced, which a restart takes up")
	return c
}

// announceFlags are the flags of announce.
type announceFlags struct {
	flow     flowspec.Fields
	rtbh     bool
	now, dry bool
	length   string
	why      string
}

func bgpAnnounce(e *env, dir func() string) *cobra.Command {
	f := &announceFlags{}
	c := &cobra.Command{
		Use:   "announce DESTINATION",
		Short: "have the routers drop packets to one of your addresses",
		Long: "Announce has the routers drop the packets that the flags describe (FlowSpec), or with --rtbh all packets to an address.\n" +
			"The destination is within the policy's `announce`. Without `live: true` it prints the routes and sends nothing.",
		Example: "  floodwall-bgp announce 192.0.2.7 --proto udp --sport 53,123 --for 10m --why 'reflection'\n" +
			"  floodwall-bgp announce 192.0.2.7 --rtbh --for 15m",
		Args: cli.Exactly(1, "DESTINATION, an address or a prefix"),
		RunE: func(c *cobra.Command, args []string) error { return e.bgpAnnounce(c, f, args[0], dir()) },
	}
	addFlow(c, &f.flow)
	c.Flags().BoolVar(&f.rtbh, "rtbh", false, "drop all packets to the address: it is gone from the network")
	c.Flags().StringVar(&f.length, "for", "10m", "`time` until it ends, at most 168h")
	c.Flags().StringVar(&f.why, "why", "", "reason, as `text`")
	c.Flags().BoolVar(&f.now, "now", false, "do not wait, though it was announced and withdrawn a short time ago")
	c.Flags().BoolVar(&f.dry, "dry-run", false, "print the routes, and send nothing")
	return c
}

// addFlow adds the flags that select the packets of an announcement.
func addFlow(c *cobra.Command, f *flowspec.Fields) {
	flags := c.Flags()
	flags.StringVar(&f.From, "from", "", "`prefix` of the sources")
	flags.StringSliceVar(&f.Proto, "proto", nil, "`protocols`, as tcp, udp, icmp or a number")
	flags.StringSliceVar(&f.Port, "port", nil, "`ports` of the destination, as 53 or 1000-2000")
	flags.StringSliceVar(&f.SPort, "sport", nil, "`ports` of the source")
	flags.StringSliceVar(&f.ICMP, "icmp", nil, "`types` of ICMP, as numbers")
	flags.StringSliceVar(&f.Length, "length", nil, "`lengths` of the IP packet in bytes, as 1000-1500")
	flags.StringVar(&f.Flags, "flags", "", "TCP `flags` as set/looked-at, as syn/syn,ack")
	flags.BoolVar(&f.Fragment, "fragment", false, "fragments alone")
	flags.StringVar(&f.Rate, "rate", "", "let this `rate` through, as 10mbit/s, and drop the rest")
}

// bgpAnnounce adds an announcement to the book and sends it to the process.
func (e *env) bgpAnnounce(c *cobra.Command, f *announceFlags, destination, dir string) error {
	request := upstream.Request{Kind: bgp.FlowSpec, Owner: e.operator(), Why: f.why, Now: f.now}
	var err error
	if request.For, err = policy.ParseDuration(f.length); err != nil || request.For > bgp.Longest {
		return cli.Usagef(c, "10m is usual", "flag --for: must be up to %v, got %q", bgp.Longest, f.length)
	}
	if request.Flow, err = f.flow.Flow(destination); err != nil {
		return cli.UsageOf(c, err)
	}
	if f.rtbh {
		request.Kind = bgp.RTBH
	}
	side, err := e.side(dir)
	if err != nil {
		return err
	}
	u, err := side.Policy(c.Context())
	if err != nil {
		return noUpstream(err)
	}
	if f.dry || !u.Live {
		return e.bgpDry(c.Context(), side, u, request)
	}
	a, err := side.Book.Announce(c.Context(), u, request, time.Now())
	if err != nil {
		return err
	}
	st, err := side.Tell(c.Context())
	if err != nil {
		return notTold(err, a.End)
	}
	e.Println("%s %s", announcedText(&a), peersText(&a, st))
	return nil
}

// bgpDry prints the route that a request would announce.
func (e *env) bgpDry(ctx context.Context, side upstream.Side, u *policy.Upstream, r upstream.Request) error {
	a, err := side.Book.Plan(ctx, u, r, time.Now())
	if err != nil {
		return err
	}
	route, err := speaker.RouteText(u, &a)
	if err != nil {
		return err
	}
	for _, p := range u.Peers {
		if slices.Contains(p.Families, a.Family()) {
			e.Println("dry run: %s would get %s until %s", p.Address, route, utc(a.End))
		}
	}
	if !u.Live {
		e.Note("nothing is announced while the policy's `upstream` lacks `live: true`")
	}
	return nil
}

// notTold returns the error for an announcement that is in the book but could not be sent to the process.
func notTold(err error, end time.Time) error {
	text := fmt.Errorf("%w; the announcement is kept until %s, and goes out as soon as that is mended", err, utc(end))
	if errors.Is(err, bgp.ErrNotRunning) {
		return wording.WithHint(text, "start it: `systemctl enable --now floodwall-bgp`")
	}
	return text
}

func noUpstream(err error) error {
	if errors.Is(err, upstream.ErrNone) {
		return wording.WithHint(err, "add upstream: {as: …, router_id: …, announce: […], peers: […]}, and apply it")
	}
	return err
}

// operator returns the name of the person who runs the command.
func (e *env) operator() string {
	if name := e.Getenv("SUDO_USER"); name != "" {
		return name
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "root"
}

func utc(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func announcedText(a *bgp.Announcement) string {
	if a.Start.After(time.Now()) {
		return fmt.Sprintf("waits: %s goes out at %s, since it was announced and ended a short time ago (--now does not wait), until %s,",
			a.Key(), utc(a.Start), utc(a.End))
	}
	return fmt.Sprintf("announced %s until %s", a.Key(), utc(a.End))
}

func peersText(a *bgp.Announcement, st bgp.Status) string {
	for _, is := range st.Announcements {
		if is.Key() == a.Key() && len(is.Peers) > 0 {
			return "to " + addressText(is.Peers)
		}
	}
	return "to nobody yet: `floodwall-bgp status` shows the sessions"
}

func addressText(list []netip.Addr) string {
	var texts []string
	for _, a := range list {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}

func bgpWithdraw(e *env, dir func() string) *cobra.Command {
	var all, now bool
	c := &cobra.Command{
		Use:   "withdraw [DESTINATION...]",
		Short: "end announcements for destinations",
		Long: "Withdraw ends all announcements for each destination, whoever wanted them. One that has not reached its minimum hold\n" +
			"ends then; --now ends it at once.",
		Example: "  floodwall-bgp withdraw 192.0.2.7 --now\n  floodwall-bgp withdraw --all",
		Args: func(c *cobra.Command, args []string) error {
			if (len(args) == 0) == !all {
				return cli.Usagef(c, "name destinations, or give --all", "want DESTINATION or --all")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return e.bgpWithdraw(c, args, all, now, dir()) },
	}
	c.Flags().BoolVar(&all, "all", false, "end all announcements")
	c.Flags().BoolVar(&now, "now", false, "end them before their minimum hold, too")
	return c
}

func (e *env) bgpWithdraw(c *cobra.Command, args []string, all, now bool, dir string) error {
	var of []netip.Prefix
	for _, text := range args {
		p, err := flowspec.Prefix(text)
		if err != nil {
			return cli.Usagef(c, "write an address or a prefix, as 192.0.2.7", "DESTINATION: %v", err)
		}
		of = append(of, p)
	}
	side, err := e.side(dir)
	if err != nil {
		return err
	}
	match := func(a *bgp.Announcement) bool { return all || slices.Contains(of, a.Flow.To) }
	gone, held, err := side.Book.Withdraw(c.Context(), match, now, time.Now())
	if err != nil {
		return err
	}
	_, told := side.Tell(c.Context())
	for _, a := range gone {
		e.Println("withdrawn %s of %s", a.Key(), a.Owner)
	}
	for _, a := range held {
		e.Println("%s of %s ends at %s, after its minimum hold (--now ends it at once)", a.Key(), a.Owner, utc(a.End))
	}
	if len(gone)+len(held) == 0 {
		return wording.Hinted("nothing is announced for that", "`floodwall-bgp status` lists what is announced")
	}
	if told != nil && !errors.Is(told, bgp.ErrNotRunning) {
		return told
	}
	return nil
}
