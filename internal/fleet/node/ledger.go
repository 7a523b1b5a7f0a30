// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// ledger stores the statements of this node across restarts of the daemon. Without it, a ban of the fleet that was lifted on this host would come
// back. Also, a ban of this host would get a new statement after a restart. That statement would be later than the controller's lift of the ban.
//
// Each line of the file is a statement: a lift is "l PREFIX SEQ", a ban is "b PREFIX SEQ UNTIL END". END is the end in the log of bans, in seconds
// since 1970, or "-". Changes are appended. A last line without a newline is from an interrupted write, and is ignored.
type ledger struct {
	path    string // the path of the file; "": nothing is stored
	bans    map[netip.Prefix]saidBan
	pending []byte    // lines to be appended
	lines   int       // number of lines in the file
	base    int       // number of lines when the file was last rewritten
	whole   bool      // the whole file must be rewritten
	retry   time.Time // no write before this time, after an error
}

// saidBan is the statement about a ban of this host.
type saidBan struct {
	seq   uint64
	until int64     // end of the ban in the fleet's time, in milliseconds since 1970
	end   time.Time // end of the ban in the log of bans; it identifies the ban
}

// ledgerSlack is the number of lines that the file may have in addition to twice the number of valid lines.
const ledgerSlack = 10_000

func ledgerPath(state string) string { return filepath.Join(state, "fleet.said") }

// openLedger reads the ledger in a state directory. It also returns this node's lifts.
func openLedger(state string) (l ledger, lifts []liftOf, err error) {
	l = ledger{bans: map[netip.Prefix]saidBan{}}
	if state == "" {
		return l, nil, nil
	}
	l.path, l.whole = ledgerPath(state), true
	text, err := os.ReadFile(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil, nil
	}
	if err != nil {
		return l, nil, fmt.Errorf("fleet: %w", err)
	}
	of := map[netip.Prefix]uint64{}
	for line := range bytes.Lines(text) {
		f := strings.Fields(string(line))
		if line[len(line)-1] != '\n' || len(f) < 3 {
			continue
		}
		p, err := netip.ParsePrefix(f[1])
		seq, badSeq := strconv.ParseUint(f[2], 10, 63)
		switch {
		case err != nil || badSeq != nil:
		case f[0] == "l":
			of[p] = max(of[p], seq)
		case f[0] == "b" && len(f) == 5:
			if ban, ok := parseSaid(seq, f[3], f[4]); ok {
				l.bans[p] = ban
			}
		}
	}
	for p, seq := range of {
		lifts = append(lifts, liftOf{p, seq})
	}
	return l, lifts, nil
}

// remember restores the statements that this node made before a restart.
func (a *Agent) remember() error {
	l, lifts, err := openLedger(a.file.State)
	if err != nil {
		return err
	}
	a.ledger = l
	for _, b := range l.bans {
		a.last = max(a.last, b.seq)
	}
	for _, o := range lifts {
		a.last = max(a.last, o.seq)
		a.table.Merge(wire.Record{Prefix: o.prefix, Statements: []wire.Statement{{Origin: a.file.Name, Seq: o.seq}}})
	}
	return nil
}

type liftOf struct {
	prefix netip.Prefix
	seq    uint64
}

func parseSaid(seq uint64, until, end string) (b saidBan, ok bool) {
	b.seq = seq
	var err error
	if b.until, err = strconv.ParseInt(until, 10, 64); err != nil {
		return b, false
	}
	if end == "-" {
		return b, true
	}
	seconds, err := strconv.ParseInt(end, 10, 64)
	b.end = time.Unix(seconds, 0)
	return b, err == nil
}

func appendLift(to []byte, p netip.Prefix, seq uint64) []byte {
	return fmt.Appendf(to, "l %v %d\n", p, seq)
}

func appendSaid(to []byte, p netip.Prefix, b saidBan) []byte {
	end := "-"
	if !b.end.IsZero() {
		end = strconv.FormatInt(b.end.Unix(), 10)
	}
	return fmt.Appendf(to, "b %v %d %d %s\n", p, b.seq, b.until, end)
}

// lifted records a lift by this node.
func (l *ledger) lifted(p netip.Prefix, seq uint64) {
	if l.path != "" {
		l.pending = appendLift(l.pending, p, seq)
	}
}

// said records the statement about a ban of this host.
func (l *ledger) said(b *ownBan) {
	if l.path != "" {
		s := saidBan{b.statement.Seq, b.statement.Until, b.End}
		l.bans[b.Prefix] = s
		l.pending = appendSaid(l.pending, b.Prefix, s)
	}
}

// statement returns the statement about a ban in the log of bans that was made before a restart. It returns false when there was none.
func (l *ledger) statement(b *ownBan, node string) (wire.Statement, bool) {
	s, ok := l.bans[b.Prefix]
	if !ok || s.end.Sub(b.End).Abs() > near || s.end.IsZero() != b.End.IsZero() {
		return wire.Statement{}, false
	}
	return wire.Statement{Origin: node, Seq: s.seq, Until: s.until, Reason: short(b.Why)}, true
}

// keep writes new lines to the disk. Only Run calls it.
func (a *Agent) keep() {
	a.mu.Lock()
	l := &a.ledger
	if l.path == "" || !l.whole && len(l.pending) == 0 || time.Now().Before(l.retry) {
		a.mu.Unlock()
		return
	}
	text, whole := l.pending, l.whole || l.lines > 2*l.base+ledgerSlack
	if whole {
		text = a.ledgerText()
	}
	l.pending, l.whole = nil, false
	a.mu.Unlock()
	err := writeLedger(l.path, text, whole)
	a.mu.Lock()
	l.lines += bytes.Count(text, []byte("\n"))
	if whole {
		l.lines = bytes.Count(text, []byte("\n"))
		l.base = l.lines
	}
	if err != nil {
		l.whole, l.retry = true, time.Now().Add(errorWait)
	}
	a.mu.Unlock()
	if err != nil {
		a.warn(fmt.Errorf("bans that were lifted here come back when the daemon is started again: %w", err))
	}
}

// ledgerText returns the new content of the ledger: all valid statements.
func (a *Agent) ledgerText() (text []byte) {
	now := a.clock.now()
	for p, b := range a.ledger.bans {
		if b.until <= now.UnixMilli() {
			delete(a.ledger.bans, p)
			continue
		}
		text = appendSaid(text, p, b)
	}
	for r := range a.table.All() {
		if seq := r.LiftedBy(a.file.Name); seq > 0 {
			text = appendLift(text, r.Prefix, seq)
		}
	}
	return text
}

// writeLedger appends to the file, or rewrites the file. When it returns, lifts are stored on the disk.
func writeLedger(path string, text []byte, whole bool) error {
	if whole {
		return writeFile(path, text, 0o600)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	_, err = f.Write(text)
	if err == nil && (bytes.HasPrefix(text, []byte("l ")) || bytes.Contains(text, []byte("\nl "))) {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	return nil
}
