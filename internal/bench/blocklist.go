package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// blocklist measures what addresses that are blocked, and never come, cost those who visit a web server, as an article did
// in 2012.
func blocklist(ctx context.Context, s *session) error {
	lists, err := s.blockLists()
	if err != nil {
		return err
	}
	return inLab(ctx, func(l *lab.Lab) error {
		b := &blockBuilder{builder: builder{session: s, lab: l}, cases: blockCases()}
		defer b.close()
		for _, c := range b.cases {
			b.progress.show("starting the server of %s", c.label)
			if c.site, err = b.blockSite(ctx); err != nil {
				return fmt.Errorf("%s: %w", c.label, err)
			}
		}
		defer b.publish() // what there is, also when the rest cannot be measured
		return b.measure(ctx, lists)
	})
}

// The article's request, and how often it was made.
const (
	blockFile     = "page"
	blockFileSize = 10 << 10
	blockRequests = 1000
	blockWarmup   = 50 // requests before those, by which what was swept from the caches comes back
)

// blockRounds is the least number of rounds of the list that is judged: by one or two, noise cannot be told.
const blockRounds = 5

// blockBuilder makes the tables of blocklist.
type blockBuilder struct {
	builder
	cases  []*blockCase
	points []blockPoint
}

// blockCase is a row of the tables: what blocks the addresses, on a host of its own.
type blockCase struct {
	blocker
	site   *site
	visits []*blockVisit // one for each point
}

// blockPoint is a list that was measured.
type blockPoint struct {
	name    string
	label   string
	entries int
}

// blockVisit is what came of the requests of all rounds with a list.
type blockVisit struct {
	blocking
	missing string
	rounds  []blockRound
	whole   lab.Times // of all rounds; only until the point is measured
	shares  [][2]float64
}

// blockRound is the figures of a round of requests.
type blockRound struct {
	whole  lab.Latency
	phases [len(lab.SerialPhases)]lab.Latency
}

// blockSite builds another site, whose server ends with the builder. The clients' wire leads to all the world.
func (b *builder) blockSite(ctx context.Context) (*site, error) {
	b.sites++
	at, err := connectSite(b.lab, b.sites, otherEnd, resolverEnd)
	if err != nil {
		return nil, err
	}
	for _, part := range []string{"0.0.0.0/1", "128.0.0.0/1", "2000::/3"} {
		to := netip.MustParsePrefix(part)
		via := at.out.Addrs[choice(to.Addr().Is6(), 1, 0)].Addr()
		if err := at.server.Route(to, via, at.in); err != nil {
			return nil, err
		}
	}
	n, err := startStaticNginx(ctx, at.server, place{receiverCPU, lab.Urgent}, blockServer(false), blockServer(true), blockFile, make([]byte, blockFileSize))
	if err != nil {
		return nil, err
	}
	b.owned = append(b.owned, n.close)
	return at, nil
}

// blockServer is the server's address.
func blockServer(v6 bool) netip.AddrPort { return netip.AddrPortFrom(choice(v6, server6, server4), 80) }

// requests is how many make a round: the article's, unless phases are too short for them.
func (b *blockBuilder) requests() int {
	return int(min(blockRequests, blockRequests*b.Phase/(5*time.Second)))
}

// measure takes all lists, from the shortest to the longest.
func (b *blockBuilder) measure(ctx context.Context, lists []func() *list) error {
	b.progress.expect(len(lists))
	for i, prepare := range lists {
		b.progress.show("making addresses")
		l := prepare()
		if err := b.point(ctx, l, b.rounds(len(l.prefixes), i == len(lists)-1)); err != nil {
			return err
		}
		b.progress.step()
	}
	return nil
}

// rounds is how many are taken of so many entries: enough of the last ones, which are judged, and one where tables have no
// column.
func (b *blockBuilder) rounds(entries int, last bool) int {
	switch {
	case last:
		return max(b.Rounds, blockRounds)
	case b.Sizes == nil && b.List == "" && !(blockPoint{entries: entries}).column():
		return 1
	}
	return b.Rounds
}

// point has all cases block a list, and then measures them in turn.
func (b *blockBuilder) point(ctx context.Context, l *list, rounds int) (err error) {
	for _, c := range b.cases {
		c.visits = append(c.visits, &blockVisit{})
	}
	b.points = append(b.points, blockPoint{name: l.name, label: l.label, entries: len(l.prefixes)})
	defer func() { err = errors.Join(err, b.unblock()) }()
	for _, c := range b.cases {
		b.progress.show("%s: loading %s", c.label, l.label)
		if c.now().missing, err = tolerate(b.block(ctx, c, l)); err != nil {
			return fmt.Errorf("%s, %s: %w", c.label, l.label, err)
		}
	}
	debug.FreeOSMemory() // what loading leaves to the garbage collector would be collected on the clients' CPU
	for round := range rounds {
		for _, c := range inTurn(b.cases, round) {
			b.progress.show("%s: round %d of %d, %s", l.label, round+1, rounds, c.label)
			if err := b.round(ctx, c, l); err != nil {
				return fmt.Errorf("%s, %s: %w", c.label, l.label, err)
			}
		}
	}
	for _, c := range b.cases {
		c.now().distribute()
	}
	return nil
}

// now is the visit of the list that is measured.
func (c *blockCase) now() *blockVisit { return c.visits[len(c.visits)-1] }

// unblock ends what blocks the list.
func (b *blockBuilder) unblock() (err error) {
	for _, c := range b.cases {
		if remove := c.now().remove; remove != nil {
			err = errors.Join(err, remove())
		}
	}
	return err
}

// block has a case block a list, and makes sure that it does.
func (b *blockBuilder) block(ctx context.Context, c *blockCase, l *list) (err error) {
	n := len(l.prefixes)
	switch {
	case c.load == nil:
	case c.most > 0 && n > c.most:
		return &missingTool{fmt.Sprintf("measured with up to %s", countText(c.most))}
	case c.slow && n >= slowSize && !b.All:
		return &missingTool{"takes minutes: measured with --all"}
	default:
		if c.now().blocking, err = c.load(ctx, c.site, l); err != nil {
			return err
		}
	}
	return c.probe(ctx, l)
}

// probeTime is how long a client waits who must not get an answer.
const probeTime = 50 * time.Millisecond

// probe has a client ask whose address is listed. Without a firewall, there is an answer.
func (c *blockCase) probe(ctx context.Context, l *list) error {
	listed, ok := l.visitor()
	if !ok {
		return nil
	}
	o := c.serial(l, 1)
	o.From, o.Warmup = listed, 0
	if c.load != nil {
		o.Timeout = probeTime
	}
	if err := o.Host.Own(netip.PrefixFrom(listed, listed.BitLen())); err != nil {
		return err
	}
	switch _, err := lab.Serial(ctx, o); {
	case c.load == nil:
		return err
	case err == nil:
		return fmt.Errorf("%s is listed and gets an answer", listed)
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%s is listed: %w", listed, err)
	}
	return nil
}

// serial is what the clients ask.
func (c *blockCase) serial(l *list, requests int) lab.SerialOptions {
	return lab.SerialOptions{
		Host: c.site.out.Host, Server: blockServer(l.v6), Request: lab.Request{Target: "/" + blockFile}, Body: blockFileSize,
		Requests: requests, Warmup: blockWarmup, CPU: sourceCPU, Urgent: true,
	}
}

// round takes one round of a case.
func (b *blockBuilder) round(ctx context.Context, c *blockCase, l *list) error {
	v := c.now()
	if v.missing != "" {
		return nil
	}
	s, err := lab.Serial(ctx, c.serial(l, b.requests()))
	if err != nil {
		return err
	}
	r := blockRound{whole: s.Whole.Latency()}
	for i, times := range s.Phases {
		r.phases[i] = times.Latency()
	}
	v.rounds = append(v.rounds, r)
	v.whole.Add(s.Whole)
	return nil
}

// distribute keeps of all times which shares of them were within which time.
func (v *blockVisit) distribute() {
	if v.whole.Count() > 0 {
		for _, percent := range []float64{1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 99, 99.5, 99.9} {
			v.shares = append(v.shares, [2]float64{percent, v.whole.Quantile(percent).Seconds() * 1e3})
		}
	}
	v.whole = lab.Times{}
}

// published are the numbers of entries of the article, from 0 on.
const (
	publishedMost = 50_000
	publishedStep = 1_000
)

// publishedColumns are those that its table shows.
var publishedColumns = []int{0, 1_000, 5_000, 10_000, 15_000, 20_000, 25_000, 30_000, 35_000, 40_000, 45_000, 50_000}

// blockLists makes the lists to measure with, each when its turn comes, from none to the longest.
func (s *session) blockLists() (all []func() *list, err error) {
	if s.List != "" {
		l, err := readList(s.List)
		if err != nil {
			return nil, err
		}
		if err := l.spare(); err != nil {
			return nil, fmt.Errorf("list %s: %w", s.List, err)
		}
		none := &list{name: "n=0", label: "no entries", hosts: l.hosts, v6: l.v6}
		return append(all, func() *list { return none }, func() *list { return l }), nil
	}
	for _, n := range s.blockSizes() {
		all = append(all, func() *list { return randomHosts(n) })
	}
	return all, nil
}

// blockSizes are the sizes of the random lists.
func (s *session) blockSizes() (sizes []int) {
	switch {
	case s.Sizes != nil:
		sizes = append([]int{0}, s.Sizes...)
		slices.Sort(sizes)
		return slices.Compact(sizes)
	case s.Quick:
		return []int{0, 1_000, fewRules, 10_000, publishedMost / 2, publishedMost, 10_000_000}
	}
	for n := 0; n <= publishedMost; n += publishedStep {
		sizes = append(sizes, n)
	}
	return append(sizes, 100_000, 1_000_000, 10_000_000)
}

// spare leaves the addresses of the lab out of a list.
func (l *list) spare() error {
	own := lab.ParseAddrs("10.0.0.0/24 fd00::/64")
	l.prefixes = slices.DeleteFunc(l.prefixes, func(p netip.Prefix) bool { return p.Overlaps(own[0]) || p.Overlaps(own[1]) })
	if len(l.prefixes) == 0 {
		return errors.New("no addresses but those of the lab itself")
	}
	l.listed = l.picks()
	return nil
}

// visitor is a listed address that a client on the Internet may have; false when there is none.
func (l *list) visitor() (netip.Addr, bool) {
	internet6 := netip.MustParsePrefix("2000::/3")
	i := slices.IndexFunc(l.listed, func(a netip.Addr) bool {
		if l.v6 {
			return internet6.Contains(a)
		}
		return unicast4(word4(a))
	})
	if i < 0 {
		return netip.Addr{}, false
	}
	return l.listed[i], true
}
