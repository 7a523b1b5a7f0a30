// SPDX-License-Identifier: Apache-2.0

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

// Outcome is the result of a fetch.
type Outcome string

// The outcomes.
const (
	NotDue    Outcome = "not due"
	Unchanged Outcome = "unchanged"
	Changed   Outcome = "changed"
	Held      Outcome = "held"
)

// retryLost is the wait before a failed fetch is repeated, if no server has answered. If a server has answered, the wait is LeastEvery. The wait
// doubles with each further failure, up to the period of the list.
const retryLost = 5 * time.Minute

// Refresh fetches a source if it is due, or if now is set. If the fetch fails, the previous copy stays, and the result of Status includes the error.
// If a server has asked for a wait, Refresh does not contact the server before its end, even if now is set.
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
	if ctx.Err() != nil { // the context has ended, so the source did not fail
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

// A WaitError is the error that the wait that a server has asked for is not over.
type WaitError struct {
	Set, Host string
	Left      time.Duration
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("set %q: %s asked to be left alone for another %s", e.Set, e.Host, e.Left.Round(time.Second))
}

// failed records a failure, and the time of the next attempt.
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

// died returns the state that is stored before a fetch. It counts as one more failure, in case the process dies during the fetch, perhaps because of
// this list. Otherwise a restarted daemon would fetch the list again at once.
func (known state) died(s Source, now time.Time) state {
	known.Failures++
	known.Next = now.Add(known.backoff(s, retryLost)).UTC()
	return known
}

// backoff returns the wait before the next attempt. wait is the wait after the first failure. It doubles with each further failure, up to the period
// of the list.
func (known *state) backoff(s Source, wait time.Duration) time.Duration {
	for range min(known.Failures-1, 12) {
		wait *= 2
	}
	return jittered(min(wait, s.Every))
}

// jittered returns a duration that is up to a tenth longer than d. So machines that start at the same time do not fetch at the same time.
func jittered(d time.Duration) time.Duration { return d + rand.N(d/10+1) }

// fetch fetches a source. If the list is valid, it is stored.
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
	case c.Entries > s.entries(): // a prefix from which a part was removed becomes several prefixes
		return "", tooMany(s.entries())
	}
	return st.place(s, before, c, content)
}

// young reports whether a server may confirm a copy without sending the body again. It may not if the copy is old. An attacker who controlled the
// server for some time could have sent a false body with the tag of the true one.
func (c *Copy) young(now time.Time) bool {
	return now.Sub(c.Fetched) < wholeAfter && !ahead(c.Fetched, now)
}

// place replaces the copy by a list, or holds the list for an operator.
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

// holds returns the reason why a list must be held. before and now are the previous and the present number of entries. It returns "" if the list need
// not be held.
func (s Source) holds(before, now int) string {
	switch {
	case now*100 < before*s.Shrink:
		return fmt.Sprintf("it has %d entries and had %d: less than %d%%", now, before, s.Shrink)
	case s.Grow > 0 && now*100 > before*s.Grow:
		return fmt.Sprintf("it has %d entries and had %d: more than %d%%", now, before, s.Grow)
	}
	return ""
}
