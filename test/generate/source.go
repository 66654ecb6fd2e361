package generate

// Source provides the bytes of a fuzzer. After their end it returns zeros.
type Source struct{ data []byte }

// NewSource returns a Source of the bytes.
func NewSource(data []byte) *Source { return &Source{data} }

// More reports whether there are bytes left.
func (s *Source) More() bool { return len(s.data) > 0 }

// Byte returns the next byte.
func (s *Source) Byte() byte {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return b
}

// Below returns a number from 0 to n-1.
func (s *Source) Below(n int) int {
	if n <= 1 {
		return 0
	}
	if n <= 256 {
		return int(s.Byte()) % n
	}
	return (int(s.Byte())<<8 | int(s.Byte())) % n
}

// OneIn returns true about once in n times.
func (s *Source) OneIn(n int) bool { return s.Below(n) == n-1 }

// Number returns a random number, often an extreme one.
func (s *Source) Number() uint64 {
	extremes := []uint64{0, 1, 2, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<62 - 1, 1 << 62, 1<<63 - 1, 1 << 63, 1<<64 - 1}
	switch s.Below(4) {
	case 0:
		return extremes[s.Below(len(extremes))]
	case 1:
		return uint64(s.Byte())
	case 2:
		return uint64(s.Byte())<<8 | uint64(s.Byte())
	}
	var n uint64
	for range 8 {
		n = n<<8 | uint64(s.Byte())
	}
	return n
}

// Bytes returns random bytes, sometimes many.
func (s *Source) Bytes() []byte {
	size := s.Below(24)
	if s.OneIn(32) {
		size = []int{64, 512, 513, 1 << 10, 1<<10 + 1, 8 << 10, 40 << 10}[s.Below(7)]
	}
	data := make([]byte, size)
	first := s.Byte()
	for i := range data {
		data[i] = first
		if i < 24 {
			data[i] = s.Byte()
		}
	}
	return data
}
