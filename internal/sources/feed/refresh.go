package feed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/floodwall/floodwall/internal/os/safefile"
)

// Outcome is what became of a fetch.
type Outcome string

// The outcomes.
const (
	NotDue    Outcome = "not due"
	Unchanged Outcome = "unchanged"
	Changed   Outcome = "changed"
	Held      Outcome = "held"
)

// How soon a fetch is tried again that failed: one that no server has answered after retryLost, one that was answered after
// LeastEvery, and with each further failure after twice that time, up to the period of the list.
const retryLost = 5 * time.Minute

// Refresh fetches a source if it is due, or now. When it fails, the copy before stays, and the error is also in what
// Status says. A server that asked to wait is left alone until then, now or not.
func (st Store) Refresh(ctx context.Context, f *Fetcher, s Source, now bool) (Outcome, error) {
	unlock, err := st.lock(ctx, s)
	if err != nil {
		return "", err
	}
	defer unlock()
	known := st.readState(s)
	begin := time.Now()
	switch {
	case begin.Before(known.Wait):
		if now {
			return NotDue, &WaitError{s.Set, hostOf(s.URL), time.Until(known.Wait)}
		}
		return NotDue, nil
	case !now && begin.Before(known.Next):
		return NotDue, nil
	}
	if err := st.writeState(s, known.died(s, begin)); err != nil {
		return "", err
	}
	outcome, err := st.fetch(ctx, f, s)
	if ctx.Err() != nil { // says nothing of the source
		return "", errors.Join(ctx.Err(), st.writeState(s, known))
	}
	known.Wait, known.Error = time.Time{}, ""
	if err != nil {
		known.failed(s, err, begin)
		return "", errors.Join(st.about(s, err), st.writeState(s, known))
	}
	known.Failures, known.Checked, known.Next = 0, begin.UTC(), begin.Add(jittered(s.Every)).UTC()
	return outcome, st.writeState(s, known)
}

// A WaitError says that a server asked to be left alone.
type WaitError struct {
	Set, Host string
	Left      time.Duration
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("set %q: %s asked to be left alone for another %s", e.Set, e.Host, e.Left.Round(time.Second))
}

// failed notes a failure, and when to try again.
func (known *state) failed(s Source, err error, now time.Time) {
	known.Failures++
	known.Error = err.Error()
	wait := LeastEvery
	var fetch *FetchError
	if errors.As(err, &fetch) && !fetch.Answered {
		wait = retryLost
	}
	wait = known.backoff(s, wait)
	if fetch != nil && fetch.Wait > 0 {
		known.Wait = now.Add(fetch.Wait).UTC()
		wait = max(wait, fetch.Wait)
	}
	known.Next = now.Add(wait).UTC()
}

// died is the state for a process that does not outlive the fetch, of this list perhaps: it counts as one more failure. Without it
// a daemon that is started again would fetch again at once.
func (known state) died(s Source, now time.Time) state {
	known.Failures++
	known.Next = now.Add(known.backoff(s, retryLost)).UTC()
	return known
}

// backoff doubles the wait after the first failure for each further one, up to the period of the list.
func (known *state) backoff(s Source, wait time.Duration) time.Duration {
	for range min(known.Failures-1, 12) {
		wait *= 2
	}
	return jittered(min(wait, s.Every))
}

// jittered is a time and up to a tenth more: machines that began together do not ask together.
func jittered(d time.Duration) time.Duration { return d + rand.N(d/10+1) }

// fetch fetches a source, and keeps what is good.
func (st Store) fetch(ctx context.Context, f *Fetcher, s Source) (Outcome, error) {
	before, _, err := st.Copy(s)
	if err != nil {
		return "", err
	}
	held, _ := readHead(st.file(s, heldFile))
	newest := before
	if held != nil {
		newest = held
	}
	var etag, modified string
	if newest != nil && newest.young(time.Now()) {
		etag, modified = newest.ETag, newest.Modified
	}
	most := orDefault(f.Bytes, mostBytes)
	got, err := f.get(ctx, s.URL, etag, modified, most)
	if err != nil {
		return "", err
	}
	if got.fresh {
		if held != nil {
			return Held, nil
		}
		return Unchanged, nil
	}
	if err := f.verify(ctx, s, got.data); err != nil {
		return "", err
	}
	sum := sha256.Sum256(got.data)
	c := &Copy{Set: s.Set, URL: s.URL, Fetched: time.Now().UTC().Truncate(time.Second), ETag: got.etag, Modified: got.modified,
		SHA256: hex.EncodeToString(sum[:])}
	text, err := got.data, error(nil)
	if text, err = unpack(text, most); err != nil {
		return "", err
	}
	list, format, bad, err := read(text, s.Format, s.entries())
	if err != nil {
		return "", err
	}
	clean := list.done()
	if err := clean.Set.NotMost(); err != nil {
		return "", fmt.Errorf("the list is not taken: %w", err)
	}
	c.Format, c.Bad, c.Read, c.Removed, c.More = format, bad, list.entries, clean.Removed, clean.More
	content, err := c.write(clean.Set)
	switch {
	case err != nil:
		return "", err
	case c.Entries > s.entries(): // a prefix that has lost a part is several
		return "", tooMany(s.entries())
	}
	return st.place(s, before, c, content)
}

// young reports whether a server may confirm a copy without its body. One that was taken over for a while can have sent another body with
// the tag of the true one.
func (c *Copy) young(now time.Time) bool {
	return now.Sub(c.Fetched) < wholeAfter && !ahead(c.Fetched, now)
}

// place puts a list into the place of the copy, or holds it.
func (st Store) place(s Source, before, c *Copy, content []byte) (Outcome, error) {
	if c.Entries == 0 {
		return "", &BodyError{"nothing is left of the list: " + c.Reasons(), "look at the list: it may be of another kind"}
	}
	if before != nil && s.holds(before.Entries, c.Entries) != "" {
		return Held, safefile.Replace(st.file(s, heldFile), content, 0o600)
	}
	if err := safefile.Replace(st.file(s, copyFile), content, 0o600); err != nil {
		return "", err
	}
	if err := os.Remove(st.file(s, heldFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if before != nil && before.Content == c.Content && before.Entries == c.Entries {
		return Unchanged, nil
	}
	return Changed, nil
}

// holds says why a list of so many entries is held, where there were so many before; "" when it is not.
func (s Source) holds(before, now int) string {
	switch {
	case now*100 < before*s.Shrink:
		return fmt.Sprintf("it has %d entries and had %d: less than %d%%", now, before, s.Shrink)
	case s.Grow > 0 && now*100 > before*s.Grow:
		return fmt.Sprintf("it has %d entries and had %d: more than %d%%", now, before, s.Grow)
	}
	return ""
}
