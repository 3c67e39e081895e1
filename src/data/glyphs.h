// The ten digits as movements of a pen, with one or more ways of writing each digit.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>

namespace reigen::data {

// A list of at most kMost items. Unlike std::vector it can be a constexpr constant.
template <typename T, std::size_t kMost>
class Few {
 public:
  constexpr Few() = default;
  constexpr Few(std::initializer_list<T> items) : size_(items.size()) {
    std::copy(items.begin(), items.end(), items_.begin());  // more than kMost items are a compile error
  }
  constexpr const T* begin() const { return items_.data(); }
  constexpr const T* end() const { return items_.data() + size_; }
  constexpr std::size_t size() const { return size_; }
  constexpr const T& operator[](std::size_t i) const { return items_[i]; }

 private:
  std::array<T, kMost> items_{};
  std::size_t size_ = 0;
};

struct Point {
  double x = 0;
  double y = 0;
  constexpr bool operator==(const Point&) const = default;
};

// One movement of the pen in the box [0, 1] x [0, 1], with y downwards. It is a curve through `points`, or it consists
// of straight lines between them.
struct Stroke {
  bool curved = false;
  Few<Point, 13> points = {};
};
using Glyph = Few<Stroke, 2>;  // all strokes get the same distortion, so ends that two strokes share stay close
using Ways = Few<Glyph, 3>;

inline constexpr bool kCurve = true;
inline constexpr bool kLine = false;

inline constexpr std::array<Ways, 10> kGlyphs = {{
    // Each comment names a digit and the shapes in which it is written. 0: round; slim; open at the top
    {{{kCurve,
       {{.5, .04}, {.25, .16}, {.14, .5}, {.25, .84}, {.5, .96}, {.75, .84}, {.86, .5}, {.75, .16}, {.5, .04}}}},
     {{kCurve,
       {{.5, .03}, {.33, .18}, {.27, .5}, {.33, .82}, {.5, .97}, {.67, .82}, {.73, .5}, {.67, .18}, {.5, .03}}}},
     {{kCurve, {{.62, .1}, {.4, .08}, {.2, .3}, {.18, .66}, {.4, .94}, {.7, .86}, {.84, .5}, {.72, .16}, {.5, .12}}}}},
    // 1: a bar; with a flag; with flag and foot
    {{{kLine, {{.5, .04}, {.5, .96}}}},
     {{kLine, {{.3, .26}, {.53, .04}, {.53, .96}}}},
     {{kLine, {{.32, .24}, {.52, .05}, {.52, .95}}}, {kLine, {{.28, .95}, {.76, .95}}}}},
    // 2: straight foot; with a loop
    {{{kCurve, {{.18, .28}, {.3, .09}, {.53, .04}, {.76, .14}, {.78, .36}, {.56, .64}, {.18, .95}}},
      {kLine, {{.18, .95}, {.84, .95}}}},
     {{kCurve,
       {{.2, .24},
        {.38, .06},
        {.64, .07},
        {.76, .27},
        {.62, .58},
        {.34, .88},
        {.16, .88},
        {.2, .73},
        {.44, .82},
        {.66, .94},
        {.86, .86}}}}},
    // 3: round; flat top
    {{{kCurve, {{.2, .14}, {.46, .04}, {.73, .14}, {.7, .36}, {.42, .47}}},
      {kCurve, {{.42, .47}, {.74, .54}, {.8, .76}, {.55, .95}, {.18, .85}}}},
     {{kLine, {{.2, .06}, {.76, .06}, {.45, .42}}},
      {kCurve, {{.45, .42}, {.74, .5}, {.8, .73}, {.56, .95}, {.2, .86}}}}},
    // 4: closed; open
    {{{kLine, {{.66, .96}, {.66, .04}, {.14, .66}, {.9, .66}}}},
     {{kLine, {{.26, .06}, {.18, .54}, {.84, .54}}}, {kLine, {{.7, .1}, {.66, .96}}}},
     {{kCurve, {{.22, .06}, {.18, .36}, {.26, .52}, {.52, .54}, {.76, .46}}}, {kLine, {{.78, .06}, {.72, .96}}}}},
    // 5: corners; one sweep
    {{{kLine, {{.78, .05}, {.3, .05}, {.26, .44}}},
      {kCurve, {{.26, .44}, {.52, .37}, {.78, .52}, {.77, .78}, {.5, .95}, {.2, .86}}}},
     {{kCurve,
       {{.76, .06}, {.46, .07}, {.3, .22}, {.34, .42}, {.6, .5}, {.74, .68}, {.62, .9}, {.36, .96}, {.18, .86}}}}},
    // 6: bent; steep
    {{{kCurve,
       {{.72, .06}, {.42, .2}, {.22, .54}, {.26, .84}, {.5, .96}, {.76, .83}, {.74, .6}, {.5, .5}, {.25, .66}}}},
     {{kCurve,
       {{.52, .04}, {.32, .36}, {.2, .7}, {.36, .94}, {.64, .93}, {.76, .74}, {.6, .56}, {.36, .62}, {.22, .76}}}}},
    // 7: plain; with a bar; bent
    {{{kLine, {{.16, .07}, {.82, .07}, {.42, .96}}}},
     {{kLine, {{.18, .07}, {.82, .07}, {.42, .96}}}, {kLine, {{.36, .5}, {.76, .5}}}},
     {{kCurve, {{.16, .2}, {.2, .08}, {.5, .1}, {.82, .06}, {.62, .38}, {.5, .68}, {.46, .96}}}}},
    // 8: one line; two rings
    {{{kCurve,
       {{.72, .16},
        {.5, .05},
        {.28, .18},
        {.36, .38},
        {.64, .58},
        {.77, .79},
        {.5, .96},
        {.23, .8},
        {.36, .58},
        {.64, .38},
        {.74, .22},
        {.66, .1}}}},
     {{kCurve, {{.5, .46}, {.3, .36}, {.3, .13}, {.5, .04}, {.7, .13}, {.7, .36}, {.5, .46}}},
      {kCurve, {{.5, .46}, {.24, .6}, {.24, .86}, {.5, .96}, {.76, .86}, {.76, .6}, {.5, .46}}}}},
    // 9: straight tail; hook
    {{{kCurve, {{.76, .24}, {.54, .05}, {.27, .14}, {.25, .38}, {.48, .5}, {.74, .38}, {.76, .24}}},
      {kLine, {{.76, .24}, {.68, .96}}}},
     {{kCurve,
       {{.75, .26},
        {.56, .05},
        {.3, .12},
        {.25, .36},
        {.48, .48},
        {.73, .34},
        {.78, .5},
        {.74, .78},
        {.52, .96},
        {.28, .88}}}}},
}};

}  // namespace reigen::data
