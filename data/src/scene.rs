//! Synthetic road scene in integer arithmetic: sky, houses, a road in perspective, and objects on it.

use super::Random;
use std::ops::Range;

/// Number of rows of a synthetic scene.
pub(super) const HEIGHT: usize = 48;
/// Number of columns of a synthetic scene.
pub(super) const WIDTH: usize = 64;
/// Label of the pixels in synthetic scenes that are ignored.
pub(super) const UNLABELLED: u8 = 9;

const SKY: u8 = 0;
const BUILDING: u8 = 1;
const POLE: u8 = 2;
const ROAD: u8 = 3;
const PAVEMENT: u8 = 4;
const TREE: u8 = 5;
const SIGN: u8 = 6;
const CAR: u8 = 7;
const PEDESTRIAN: u8 = 8;

/// Number of rows of the image as i32, for sums with negative terms.
#[expect(clippy::cast_possible_truncation, reason = "small")]
const ROWS: i32 = HEIGHT as i32;
#[expect(clippy::cast_possible_truncation, reason = "small")]
const COLUMNS: i32 = WIDTH as i32;

type Colour = [i32; 3];

/// Draws a random scene and returns its pixels, row by row: colour before light and noise, and label.
pub(super) fn draw(random: &mut Random) -> Vec<(Colour, u8)> {
    let horizon = random.between(16, 23);
    let vanishing = random.between(22, 41);
    let road = [random.between(-12, 6), random.between(57, 75)];
    let kerb = [road[0] - random.between(8, 22), road[1] + random.between(8, 22)];
    let mut scene = Scene { pixels: vec![([0; 3], SKY); WIDTH * HEIGHT], horizon, vanishing, road, kerb };
    scene.sky(random);
    scene.houses(random);
    scene.ground(random);
    scene.trees(random);
    scene.things(random);
    scene.bonnet(random);
    scene.pixels
}

struct Scene {
    pixels: Vec<(Colour, u8)>,
    /// Row of the horizon in the image.
    horizon: i32,
    /// Column of the vanishing point of the road, at the horizon.
    vanishing: i32,
    /// Columns of the road's edges in the last row.
    road: [i32; 2],
    /// Columns of the pavements' outer edges in the last row.
    kerb: [i32; 2],
}

/// Returns a colour that is up to `by` lighter or darker in each value.
fn near(colour: Colour, by: i32, random: &mut Random) -> Colour {
    colour.map(|value| value + random.between(-by, by))
}

impl Scene {
    fn paint(&mut self, rows: Range<i32>, columns: Range<i32>, colour: Colour, label: u8) {
        for row in rows.start.max(0)..rows.end.min(ROWS) {
            for column in columns.start.max(0)..columns.end.min(COLUMNS) {
                if let Ok(at) = usize::try_from(row * COLUMNS + column) {
                    self.pixels[at] = (colour, label);
                }
            }
        }
    }

    /// Returns the column in `row` of a line along the road that ends in `column` of the last row.
    const fn along(&self, column: i32, row: i32) -> i32 {
        self.vanishing + (column - self.vanishing) * (row - self.horizon) / (ROWS - 1 - self.horizon)
    }

    fn sky(&mut self, random: &mut Random) {
        let colour = near([165, 178, 195], 25, random);
        for row in 0..ROWS {
            self.paint(row..row + 1, 0..COLUMNS, colour.map(|value| value + row), SKY);
        }
    }

    /// Draws houses in blocks, lower towards the vanishing point; every sixth block is only a wall.
    fn houses(&mut self, random: &mut Random) {
        let mut start = random.between(-6, 0);
        while start < COLUMNS {
            let end = start + random.between(6, 13);
            let full = if random.below(6) == 0 { 3 } else { random.between(12, 30) };
            let colour = near([118, 106, 98], 28, random);
            for column in start..end {
                let roof = self.horizon - full * (10 + (column - self.vanishing).abs()) / 42;
                self.paint(roof..ROWS, column..column + 1, colour, BUILDING);
                if (column - start) % 4 >= 2 {
                    let windows = (roof + 2..self.horizon + 4).step_by(5);
                    windows
                        .for_each(|row| self.paint(row..row + 2, column..column + 1, colour.map(|v| v - 35), BUILDING));
                }
            }
            start = end;
        }
    }

    fn ground(&mut self, random: &mut Random) {
        let (road, pavement) = (near([100, 98, 104], 12, random), near([128, 121, 117], 12, random));
        let middle = (self.road[0] + self.road[1]) / 2;
        for row in self.horizon + 1..ROWS {
            let [kerb, road_edge] = [self.kerb, self.road].map(|edges| edges.map(|column| self.along(column, row)));
            self.paint(row..row + 1, kerb[0]..kerb[1] + 1, pavement, PAVEMENT);
            self.paint(row..row + 1, road_edge[0]..road_edge[1] + 1, road, ROAD);
            if row % 6 < 3 {
                let line = self.along(middle, row);
                self.paint(row..row + 1, line..line + 1, road.map(|value| value + 70), ROAD);
            }
        }
    }

    fn trees(&mut self, random: &mut Random) {
        for _ in 0..random.between(0, 4) {
            let side = random.below(2);
            let foot = self.horizon + random.between(2, 9);
            let column = self.along(self.kerb[side], foot) + random.between(-3, 3);
            let radius = (foot - self.horizon) / 2 + random.between(3, 5);
            let middle = self.horizon - random.between(1, 5);
            let green = near([72, 86, 56], 14, random);
            self.paint(middle..foot, column..column + 1, green.map(|value| value - 15), TREE);
            for row in middle - radius..=middle + radius {
                for x in column - radius..=column + radius {
                    let far = (row - middle).pow(2) + (x - column).pow(2) + random.between(0, 8);
                    if far <= radius * radius + 2 {
                        self.paint(row..row + 1, x..x + 1, near(green, 12, random), TREE);
                    }
                }
            }
        }
    }

    /// Draws cars, people, poles and signs, the far ones first. `size` is the camera's height at that distance, in
    /// pixels.
    fn things(&mut self, random: &mut Random) {
        let mut things = Vec::new();
        for (label, most, sizes) in
            [(CAR, 4, [4, 15]), (PEDESTRIAN, 4, [4, 13]), (POLE, 1, [4, 18]), (SIGN, 3, [6, 14])]
        {
            for _ in 0..random.between(0, most) {
                things.push((random.between(sizes[0], sizes[1]), label));
            }
        }
        things.sort_unstable();
        for (size, label) in things {
            let foot = self.horizon + size;
            let side = random.below(2);
            let [edge, kerb, other] =
                [self.road[side], self.kerb[side], self.road[1 - side]].map(|column| self.along(column, foot));
            let beside = edge + (kerb - edge) * random.between(1, 7) / 8;
            match label {
                CAR => self.car(foot, edge + (other - edge) * random.between(1, 3) / 8, size, random),
                PEDESTRIAN => self.pedestrian(foot, beside, size, random),
                POLE => {
                    let colour = near([132, 132, 126], 20, random);
                    self.paint(foot - 3 * size..foot, beside..beside + 1 + size / 14, colour, POLE);
                }
                _ => self.sign(foot, beside, size, random),
            }
        }
    }

    fn car(&mut self, foot: i32, middle: i32, size: i32, random: &mut Random) {
        const PAINT: [Colour; 5] = [[150, 40, 40], [60, 75, 130], [185, 185, 185], [45, 45, 50], [110, 125, 115]];
        let body = near(PAINT[random.below(PAINT.len())], 15, random);
        let half = (size * 2 / 3).max(2);
        let roof = foot - size;
        self.paint(roof + size / 3..foot, middle - half..middle + half, body, CAR);
        self.paint(roof..roof + size / 3, middle - half * 3 / 4..middle + half * 3 / 4, [50, 55, 62], CAR);
        let wheel = (half / 3).max(1);
        self.paint(foot - size / 5..foot, middle - half..middle - half + wheel, [25, 25, 25], CAR);
        self.paint(foot - size / 5..foot, middle + half - wheel..middle + half, [25, 25, 25], CAR);
    }

    fn pedestrian(&mut self, foot: i32, middle: i32, size: i32, random: &mut Random) {
        let (coat, legs) = (near([95, 75, 80], 45, random), near([55, 55, 65], 20, random));
        let columns = middle..middle + (size / 4).max(1);
        let top = foot - size * 6 / 5;
        self.paint(top..foot, columns.clone(), [170, 130, 110], PEDESTRIAN);
        self.paint(top + (size / 5).max(1)..foot, columns.clone(), coat, PEDESTRIAN);
        self.paint(foot - size / 2..foot, columns, legs, PEDESTRIAN);
    }

    /// Draws a traffic sign on a pole into the scene.
    fn sign(&mut self, foot: i32, middle: i32, size: i32, random: &mut Random) {
        const PAINT: [Colour; 3] = [[185, 50, 45], [50, 85, 175], [200, 165, 55]];
        let side = (size * 2 / 5).max(2);
        let bottom = foot - size * 3 / 2;
        self.paint(bottom..foot, middle..middle + 1, [132, 132, 126], POLE);
        let left = middle - side / 2;
        self.paint(bottom - side..bottom, left..left + side, PAINT[random.below(PAINT.len())], SIGN);
    }

    /// Draws the bonnet of the car that carries the camera, which is no class.
    fn bonnet(&mut self, random: &mut Random) {
        let rows = random.between(1, 2);
        self.paint(ROWS - rows..ROWS, 0..COLUMNS, near([60, 60, 64], 20, random), UNLABELLED);
    }
}
