// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Line is one JSON line of a stream of samples. The first line has only OneIn, the last line has only Lost, and each other line is a sample.
type Line struct {
	OneIn uint32  `json:"one_in,omitempty"` // one in this many packets is sampled
	Lost  *uint64 `json:"lost,omitempty"`   // number of samples that were lost because they came faster than they were written
	Sample
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
		if err := to.Encode(s); err != nil {
			return err
		}
	}
	lost, err := f.Lost()
	if err != nil {
		return err
	}
	return to.Encode(Line{Lost: &lost})
}

// Stream reads the lines that Follower.Write has written.
type Stream struct {
	in    io.ReadCloser
	lines *json.Decoder
	oneIn uint32
	lost  uint64
}

// NewStream reads the first line. If that is not valid, it closes the stream.
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

// Read waits for a sample. It returns io.EOF after the last sample, and another error when the stream ends too early.
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
	return line.Sample, nil
}

// OneIn returns n if one in n packets is sampled.
func (s *Stream) OneIn() uint32 { return s.oneIn }

// SetShare does nothing: the policy sets the sampling rate.
func (s *Stream) SetShare(uint32) error { return nil }

// Lost returns the number of samples that are missing from the stream. It is known only at the end of the stream.
func (s *Stream) Lost() (uint64, error) { return s.lost, nil }

// Close ends the stream.
func (s *Stream) Close() error { return s.in.Close() }
