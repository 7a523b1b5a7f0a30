package sample

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Line is a line of samples as JSON. The first has OneIn alone, the last Lost alone, and each other one a sample.
type Line struct {
	OneIn   uint32    `json:"one_in,omitempty"` // packets of which one is sampled
	Lost    *uint64   `json:"lost,omitempty"`   // samples that were taken, and came faster than they were written
	Time    time.Time `json:"time,omitzero"`
	Device  string    `json:"device,omitempty"`
	Verdict string    `json:"verdict,omitempty"` // of XDP
	Reason  string    `json:"reason,omitempty"`  // the rule, check or default that decided
	Stands  float64   `json:"stands,omitempty"`  // so many packets it stands for
	Length  int       `json:"length,omitempty"`  // of the whole frame, in bytes
	Frame   []byte    `json:"frame,omitempty"`   // its first bytes, in base64
}

// Write writes samples as JSON lines until ctx ends, which is no error.
func (f *Follower) Write(ctx context.Context, out io.Writer) error {
	to := json.NewEncoder(out)
	if err := to.Encode(Line{OneIn: f.OneIn()}); err != nil {
		return err
	}
	for {
		s, err := f.Read(ctx)
		if err != nil {
			break
		}
		if err := to.Encode(Line{Time: s.Time, Device: s.Device, Verdict: s.Verdict, Reason: s.Reason, Stands: s.Stands, Length: s.Length, Frame: s.Frame}); err != nil {
			return err
		}
	}
	lost, err := f.Lost()
	if err != nil {
		return err
	}
	return to.Encode(Line{Lost: &lost})
}

// Stream reads what Write has written.
type Stream struct {
	in    io.ReadCloser
	lines *json.Decoder
	oneIn uint32
	lost  uint64
}

// NewStream reads the first line, and closes the stream when it is none.
func NewStream(in io.ReadCloser) (*Stream, error) {
	s := &Stream{in: in, lines: json.NewDecoder(in)}
	var first Line
	err := s.lines.Decode(&first)
	if err == nil && first.OneIn == 0 {
		err = errors.New("the share is missing")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("samples of the daemon: %w", err), s.Close())
	}
	s.oneIn = first.OneIn
	return s, nil
}

// Read waits for a sample, as long as the stream lasts. Its end is io.EOF. When it breaks off there is another error.
func (s *Stream) Read(context.Context) (Sample, error) {
	var line Line
	if err := s.lines.Decode(&line); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Sample{}, fmt.Errorf("samples of the daemon: %w", err)
	}
	if line.Lost != nil {
		s.lost = *line.Lost
		return Sample{}, io.EOF
	}
	return Sample{Time: line.Time, Device: line.Device, Verdict: line.Verdict, Reason: line.Reason, Stands: line.Stands, Length: line.Length, Frame: line.Frame}, nil
}

// OneIn is the number of packets of which one is sampled.
func (s *Stream) OneIn() uint32 { return s.oneIn }

// SetShare does nothing: the policy says how many samples are taken.
func (s *Stream) SetShare(uint32) error { return nil }

// Lost counts the samples that were taken and are not in the stream. It is known at its end.
func (s *Stream) Lost() (uint64, error) { return s.lost, nil }

// Close ends the stream.
func (s *Stream) Close() error { return s.in.Close() }
